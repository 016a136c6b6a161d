"""A steady open-loop load in a process of its own: keep-alive connections, every request with status and latency.

    with steady_load(port, "/shop/search/predict", rate_per_second=200) as load:
        ...                      # whatever must not cost a request
    outcome = load.stop()
    assert outcome.failed == ()

Requests start when they are due, whether or not earlier ones were answered, and latency counts from when a request
was due: a stall shows. Nothing is sent twice: a connection that ends without an answer is a failed request, as a
client that may not repeat itself sees it. Times are time.monotonic(), which processes of one machine share.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import math
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
GIVE_UP_SECONDS = 120.0  # a hang guard


@dataclass(frozen=True, slots=True)
class Sample:
    """One request: when it was due, how long it took, and how it was answered."""

    at: float  # time.monotonic()
    latency_ms: float
    status: int  # 0: no answer
    problem: str = ""  # why there was none

    @property
    def failed(self) -> bool:
        return not 200 <= self.status < 300


@dataclass(frozen=True, slots=True)
class Outcome:
    """All that was sent."""

    samples: tuple[Sample, ...]

    @property
    def failed(self) -> tuple[Sample, ...]:
        return tuple(sample for sample in self.samples if sample.failed)

    def between(self, start: float, end: float) -> Outcome:
        """What was due from `start` to `end`, both time.monotonic()."""
        return Outcome(tuple(sample for sample in self.samples if start <= sample.at < end))

    def percentile_ms(self, percent: float) -> float:
        """The latency that this share of the answered requests kept; 0 when there were none."""
        return percentile([sample.latency_ms for sample in self.samples if sample.status], percent)


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest value that `percent` of them do not pass."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)] if ordered else 0.0


class Load:
    """The running process. `stop` may be called once."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    @property
    def pid(self) -> int:
        return self._process.pid

    def stop(self) -> Outcome:
        """Send no more, wait for what is open, and tell."""
        said, _ = self._process.communicate(timeout=GIVE_UP_SECONDS)  # closes its input, which ends it
        assert self._process.returncode == 0, f"the load ended with {self._process.returncode}"
        return Outcome(tuple(Sample(*row) for row in json.loads(said)))

    def end(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.communicate()


@contextmanager
def steady_load(
    port: int,
    path: str = "/",
    *,
    rate_per_second: float,
    connections: int = 16,
    method: str = "GET",
    body: str = "",
    timeout_seconds: float = 30.0,
    host: str = "127.0.0.1",
) -> Iterator[Load]:
    """Load from when the block is entered, the first answer awaited, until `stop`; it dies with its parent."""
    words = ["--port", port, "--path", path, "--rate", rate_per_second, "--connections", connections]
    words += ["--method", method, "--body", body, "--timeout", timeout_seconds, "--host", host]
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.support.load", *map(str, words)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    load = Load(process)
    try:
        assert process.stdout and process.stdout.readline() == "answered\n", "the load did not start"
        yield load
    finally:
        load.end()


# The process


class _Client:
    """Starts requests when they are due, on connections that are free."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        body = args.body.encode()
        head = f"{args.method} {args.path} HTTP/1.1\r\nHost: {args.host}:{args.port}\r\n"
        if body:
            head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        self.request = head.encode() + b"\r\n" + body
        self.samples: list[tuple[float, float, int, str]] = []
        self.free: list[_Connection] = []
        self.waiting: deque[float] = deque()  # when each was due
        self.opened = 0  # connections, and those on their way
        self.open_requests = 0
        self.stopping = asyncio.Event()
        self.all_answered = asyncio.Event()

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        loop.add_reader(sys.stdin.fileno(), self._stop)
        self._start_what_is_due(time.monotonic())
        await self.stopping.wait()
        if self.open_requests:
            await asyncio.wait_for(self.all_answered.wait(), self.args.timeout + 10)

    def _start_what_is_due(self, due: float) -> None:
        while due <= time.monotonic() and not self.stopping.is_set():
            self.start(due)
            due += 1 / self.args.rate
        asyncio.get_running_loop().call_at(due, self._start_what_is_due, due)  # its clock is time.monotonic()

    def _stop(self) -> None:
        asyncio.get_running_loop().remove_reader(sys.stdin.fileno())
        self.stopping.set()

    def start(self, due: float) -> None:
        self.open_requests += 1
        if self.free:
            self.free.pop().send(due)
            return
        self.waiting.append(due)
        if self.opened < self.args.connections:
            self.opened += 1
            asyncio.get_running_loop().create_task(self._open())

    async def _open(self) -> None:
        try:
            await asyncio.wait_for(
                asyncio.get_running_loop().create_connection(lambda: _Connection(self), self.args.host, self.args.port),
                self.args.timeout,
            )
        except OSError as error:
            self.opened -= 1
            if self.waiting:
                self.done(self.waiting.popleft(), 0, f"connect: {error}")

    def unused(self, connection: _Connection) -> None:
        if self.waiting:
            connection.send(self.waiting.popleft())
        else:
            self.free.append(connection)

    def gone(self, connection: _Connection) -> None:
        self.opened -= 1
        if connection in self.free:
            self.free.remove(connection)
        if self.waiting and self.opened < self.args.connections:
            self.opened += 1
            asyncio.get_running_loop().create_task(self._open())

    def done(self, due: float, status: int, problem: str) -> None:
        if not self.samples:
            sys.stdout.write("answered\n")
            sys.stdout.flush()
        self.samples.append((due, (time.monotonic() - due) * 1000, status, problem))
        self.open_requests -= 1
        if self.stopping.is_set() and not self.open_requests:
            self.all_answered.set()


class _Connection(asyncio.Protocol):
    """One keep-alive connection with at most one request on it."""

    transport: asyncio.Transport

    def __init__(self, client: _Client) -> None:
        self.client = client
        self.due = 0.0  # of the request on it; 0: none
        self.guard: asyncio.TimerHandle | None = None
        self.received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.client.unused(self)

    def send(self, due: float) -> None:
        self.due = due
        self.guard = asyncio.get_running_loop().call_later(self.client.args.timeout, self._too_late)
        self.transport.write(self.client.request)

    def data_received(self, data: bytes) -> None:
        self.received += data
        head, found, rest = self.received.partition(b"\r\n\r\n")
        if not found or not self.due:
            return
        lowered = head.lower()
        status = int(head[9:12])
        length = lowered.partition(b"\r\ncontent-length:")[2].partition(b"\r\n")[0]
        if length.strip().isdigit():
            whole = len(rest) >= int(length)
        else:
            whole = b"\r\ntransfer-encoding: chunked" in lowered and rest.endswith(b"0\r\n\r\n")
        if whole or status == 204:
            self._answered(status, b"\r\nconnection: close" in lowered or head.startswith(b"HTTP/1.0"))

    def connection_lost(self, exc: Exception | None) -> None:
        if self.due:
            said = f"{len(self.received)} bytes of an answer" if self.received else "no answer"
            self._done(0, f"closed with {said}: {exc or 'end of stream'}")
        self.client.gone(self)

    def _answered(self, status: int, closing: bool) -> None:
        self.received = b""
        self._done(status, "")
        if closing:
            self.transport.close()
        else:
            self.client.unused(self)

    def _too_late(self) -> None:
        self._done(0, "timeout")
        self.transport.abort()

    def _done(self, status: int, problem: str) -> None:
        due, self.due = self.due, 0.0
        if self.guard:
            self.guard.cancel()
        self.client.done(due, status, problem)


def main() -> None:
    parser = argparse.ArgumentParser()
    for name, kind in (("port", int), ("rate", float), ("connections", int), ("timeout", float)):
        parser.add_argument(f"--{name}", type=kind, required=True)
    for name in ("host", "path", "method", "body"):
        parser.add_argument(f"--{name}", required=True)
    client = _Client(parser.parse_args())
    gc.disable()  # a pause of ours would be measured as one of theirs
    asyncio.run(client.run())
    json.dump(client.samples, sys.stdout)


if __name__ == "__main__":
    main()
