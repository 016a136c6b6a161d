"""An open loop of HTTP requests: each is sent when it is due, whether or not earlier ones were answered.

Latency counts from when a request was due, so that a stall shows. Nothing is sent twice: a connection that ends without
an answer is a failed request, as a client that may not repeat itself has it. Times are time.monotonic(), which the
processes of a machine share.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, cast

TICK_SECONDS = 0.001
MOST_WAITING = 100_000  # requests without a connection; more of them fail at once


class TimedAnswer(NamedTuple):
    """The time a request was due, the latency of its answer, and the answer."""

    due: float
    latency_ms: float
    status: int  # 0: no answer
    problem: str = ""  # why there was none
    body: bytes = b""  # as it came, in chunks if it came so


async def send_when_due(moments: Iterable[float], send: Callable[[float], None]) -> None:
    """Calls `send` with each moment once it has come; those that are overdue together."""
    now = time.monotonic()
    for due in moments:
        while due > now:
            await asyncio.sleep(max(TICK_SECONDS, due - now))
            now = time.monotonic()
        send(due)


def percentile(values: Sequence[float], percent: float) -> float:
    """Returns the smallest value that `percent` % of all do not exceed; 0 if there are none."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)] if ordered else 0.0


class RequestSender:
    """Sends requests over at most so many keep-alive connections; `answered` gets what became of each."""

    def __init__(
        self,
        host: str,
        port: int,
        answered: Callable[[TimedAnswer], None],
        *,
        connections: int = 1,
        timeout_seconds: float,
    ) -> None:
        self._address = (host, port)
        self._answered = answered
        self._most_connections = connections
        self.timeout_seconds = timeout_seconds
        self.open_requests = 0
        self._free: list[_KeepAlive] = []
        self._connections = 0  # and those on their way
        self._waiting: deque[tuple[float, bytes]] = deque()
        self._opening: set[asyncio.Task[None]] = set()

    def send(self, due: float, request: bytes) -> None:
        """Sends a request, now or as soon as a connection is free."""
        self.open_requests += 1
        if self._free:
            self._free.pop().send(due, request)
        elif len(self._waiting) < MOST_WAITING:
            self._waiting.append((due, request))
            self._connect_if_needed()
        else:
            self.finish(due, 0, "too many requests wait")

    async def settle(self, seconds: float) -> None:
        """Waits until all requests are answered, but no longer than this."""
        until = time.monotonic() + seconds
        while self.open_requests and time.monotonic() < until:
            await asyncio.sleep(0.01)

    async def connect(self) -> None:
        """Opens a connection, which the next request finds free."""
        self._connections += 1
        await self._open()

    async def _open(self) -> None:
        try:
            connecting = asyncio.get_running_loop().create_connection(lambda: _KeepAlive(self), *self._address)
            await asyncio.wait_for(connecting, self.timeout_seconds)
        except OSError:
            self._connections -= 1
            raise

    async def _open_for_waiting(self) -> None:
        try:
            await self._open()
        except OSError as error:
            if self._waiting:
                due, _ = self._waiting.popleft()
                self.finish(due, 0, f"connect: {error}")
            self._connect_if_needed()

    def _connect_if_needed(self) -> None:
        if self._waiting and self._connections < self._most_connections:
            self._connections += 1
            task = asyncio.get_running_loop().create_task(self._open_for_waiting())
            self._opening.add(task)
            task.add_done_callback(self._opening.discard)

    def free(self, connection: _KeepAlive) -> None:
        """Takes a connection that has no request on it."""
        if self._waiting:
            connection.send(*self._waiting.popleft())
        else:
            self._free.append(connection)

    def gone(self, connection: _KeepAlive) -> None:
        """Forgets a connection that has ended."""
        self._connections -= 1
        if connection in self._free:
            self._free.remove(connection)
        self._connect_if_needed()

    def finish(self, due: float, status: int, problem: str = "", body: bytes = b"") -> None:
        """Reports what became of a request."""
        self.open_requests -= 1
        self._answered(TimedAnswer(due, (time.monotonic() - due) * 1000, status, problem, body))


class _KeepAlive(asyncio.Protocol):
    """A keep-alive connection of HTTP/1.1 with at most one request on it, and no more of HTTP than that."""

    _transport: asyncio.Transport

    def __init__(self, sender: RequestSender) -> None:
        self._sender = sender
        self._due: float | None = None  # of the request on it
        self._guard: asyncio.TimerHandle | None = None
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is no subclass
        self._sender.free(self)

    def send(self, due: float, request: bytes) -> None:
        self._due = due
        self._guard = asyncio.get_running_loop().call_later(self._sender.timeout_seconds, self._too_late)
        self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, found, rest = self._received.partition(b"\r\n\r\n")
        if not found or self._due is None:
            return
        lowered = head.lower()
        status = int(head[9:12])
        length = lowered.partition(b"\r\ncontent-length:")[2].partition(b"\r\n")[0].strip()
        if length.isdigit():
            is_whole = len(rest) >= int(length)
        else:
            is_whole = b"\r\ntransfer-encoding: chunked" in lowered and rest.endswith(b"0\r\n\r\n")
        if is_whole or status == 204:
            self._received = b""
            self._finish(status, body=rest)
            if b"\r\nconnection: close" in lowered or head.startswith(b"HTTP/1.0"):
                self._transport.close()
            else:
                self._sender.free(self)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._due is not None:
            came = f"{len(self._received)} bytes of an answer" if self._received else "no answer"
            self._finish(0, f"closed with {came}: {exc or 'end of stream'}")
        self._sender.gone(self)

    def _too_late(self) -> None:
        self._finish(0, "timeout")
        self._transport.abort()

    def _finish(self, status: int, problem: str = "", body: bytes = b"") -> None:
        assert self._due is not None
        due, self._due = self._due, None
        if self._guard:
            self._guard.cancel()
        self._sender.finish(due, status, problem, body)
