"""The load generator, a process of its own: reports at fixed moments, whatever became of those before.

Open loop: a report is due at its moment in the schedule and its latency counts from then, also when the
connection was still busy or we were late ourselves. What to do comes as JSON on stdin; what was measured goes,
as JSON, into the file named there.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import time
from collections import deque
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import cast

from cli.bench.reports import ReportSource, stamps

TICK_SECONDS = 0.001
PATIENCE_SECONDS = 10.0  # for answers still out at the end
POLL_SECONDS = 30
WARM_SECONDS = 3.0
CONNECTS_AT_ONCE = 50


@dataclass(slots=True)
class LoadTally:
    """What is measured."""

    latencies_ms: list[float] = field(default_factory=list)
    errors: dict[str, int] = field(default_factory=dict)
    decisions: list[tuple[int, float]] = field(default_factory=list)  # version, monotonic time of its arrival
    counting: bool = False
    last_answer: float = 0.0

    def error(self, what: str) -> None:
        if self.counting:
            self.errors[what] = self.errors.get(what, 0) + 1


class Http(asyncio.Protocol):
    """Keep-alive HTTP/1.1 with answers of a known length, and no more of it than that."""

    def __init__(self) -> None:
        self._buffer = b""
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's is no subclass

    def data_received(self, data: bytes) -> None:
        self._buffer = self._buffer + data if self._buffer else data
        while self._buffer:
            end = self._buffer.find(b"\r\n\r\n")
            if end < 0:
                return
            head = self._buffer[:end].lower()
            at = head.find(b"content-length:")
            length = int(head[at + 15 :].split(b"\r\n", 1)[0]) if at >= 0 else 0
            if len(self._buffer) < end + 4 + length:
                return
            body = self._buffer[end + 4 : end + 4 + length]
            self._buffer = self._buffer[end + 4 + length :]
            self.answered(int(head[9:12]), body)

    def answered(self, status: int, body: bytes) -> None:
        raise NotImplementedError


class Reporter(Http):
    """One agent's connection for reports."""

    def __init__(self, tally: LoadTally) -> None:
        super().__init__()
        self._tally = tally
        self._due: deque[tuple[float, bytes]] = deque()
        self._sent_for: float | None = None

    def send(self, due: float, request: bytes) -> None:
        """Send now, or when the answer before has come."""
        if self._sent_for is None and self.transport is not None:
            self._sent_for = due
            self.transport.write(request)
        else:
            self._due.append((due, request))

    @property
    def outstanding(self) -> int:
        return len(self._due) + (self._sent_for is not None)

    def answered(self, status: int, body: bytes) -> None:
        assert self._sent_for is not None
        now = time.monotonic()
        if status != 200:
            self._tally.error(f"report {status}: {body[:200].decode(errors='replace')}")
        elif self._tally.counting:
            self._tally.latencies_ms.append((now - self._sent_for) * 1000)
            self._tally.last_answer = now
        self._sent_for = None
        if self._due:
            self.send(*self._due.popleft())

    def connection_lost(self, exc: Exception | None) -> None:
        if self.outstanding:
            self._tally.error("connection lost")


class Poller(Http):
    """One agent's connection for its long poll."""

    def __init__(self, fleet: ReportSource, number: int, tally: LoadTally) -> None:
        super().__init__()
        self._fleet = fleet
        self._number = number
        self._tally = tally
        self._version = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._ask()

    def answered(self, status: int, body: bytes) -> None:
        if status == 200:
            at = body.index(b'"version":') + 10
            self._version = int(body[at : at + 20].split(b",")[0].strip(b"}"))
            self._tally.decisions.append((self._version, time.monotonic()))
        elif status != 204:
            self._tally.error(f"poll {status}: {body[:200].decode(errors='replace')}")
            asyncio.get_running_loop().call_later(1, self._ask)
            return
        self._ask()

    def _ask(self) -> None:
        if self.transport is not None and not self.transport.is_closing():
            self.transport.write(self._fleet.poll(self._number, self._version, POLL_SECONDS))


async def run(host: str, port: int, tokens: list[str], rate: float, seconds: float) -> LoadTally:
    """Connect every agent, let each report once and the server warm up, then measure for `seconds`."""
    fleet, tally = ReportSource(tokens, f"{host}:{port}"), LoadTally()
    reporters = await _connect(host, port, [lambda: Reporter(tally) for _ in tokens])
    await _connect(host, port, [lambda n=n: Poller(fleet, n, tally) for n in range(len(tokens))])
    gc.collect()
    gc.freeze()
    gc.disable()  # our own pauses are not the server's
    warm = min(rate, 500.0)
    await _keep_schedule(fleet, reporters, warm, len(tokens) / warm)
    await _keep_schedule(fleet, reporters, rate, WARM_SECONDS)
    await _settle(reporters)
    print("warm", file=sys.stderr, flush=True)
    tally.counting = True
    started = time.monotonic()
    await _keep_schedule(fleet, reporters, rate, seconds)
    await _settle(reporters)
    for reporter in reporters:
        for _ in range(reporter.outstanding):
            tally.error("no answer")
    tally.counting = False
    tally.last_answer = max(tally.last_answer - started, seconds)
    return tally


async def _connect(host: str, port: int, factories: list) -> list:  # type: ignore[type-arg]
    loop = asyncio.get_running_loop()
    made = []
    for at in range(0, len(factories), CONNECTS_AT_ONCE):
        some = factories[at : at + CONNECTS_AT_ONCE]
        pairs = await asyncio.gather(*(loop.create_connection(factory, host, port) for factory in some))
        made += [protocol for _, protocol in pairs]
    return made


async def _keep_schedule(fleet: ReportSource, reporters: list[Reporter], rate: float, seconds: float) -> None:
    started = time.monotonic()
    total, sent = round(rate * seconds), 0
    while sent < total:
        elapsed = time.monotonic() - started
        due = min(total, int(elapsed * rate) + 1)
        if sent < due:
            now = datetime.now(UTC)
            stamp, minute = stamps(now)
            for place in range(sent, due):
                number = place % len(reporters)
                request = fleet.report(number, now, stamp, minute)
                reporters[number].send(started + place / rate, request)
            sent = due
        await asyncio.sleep(max(TICK_SECONDS, started + sent / rate - time.monotonic()))


async def _settle(reporters: list[Reporter]) -> None:
    until = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < until and any(reporter.outstanding for reporter in reporters):
        await asyncio.sleep(0.01)


def main() -> None:
    """Read what to do from stdin, do it, say what was measured."""
    import uvloop

    order = json.loads(sys.stdin.readline())
    result = Path(order.pop("result"))
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        tally = runner.run(run(**order))
    answer = {
        "latencies_ms": tally.latencies_ms,
        "errors": tally.errors,
        "decisions": tally.decisions,
        "seconds": tally.last_answer,
        "cpu_seconds": time.process_time(),
    }
    result.write_text(json.dumps(answer))


if __name__ == "__main__":
    main()
