"""The load generator, a process of its own: reports at fixed moments, whatever became of those before.

What to do comes as JSON on stdin; what was measured goes, as JSON, into the file named there.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import cycle
from pathlib import Path

from cli.bench.reports import ReportSource, stamps
from simulation.open_loop import RequestSender, TimedAnswer, send_when_due

PATIENCE_SECONDS = 10.0  # for answers still out at the end
POLL_SECONDS = 30
TIMEOUT_SECONDS = 2.0 * POLL_SECONDS
WARM_SECONDS = 3.0
CONNECTS_AT_ONCE = 50


@dataclass(slots=True)
class LoadTally:
    """The measurements of a load."""

    latencies_ms: list[float] = field(default_factory=list)
    errors: dict[str, int] = field(default_factory=dict)
    decisions: list[tuple[int, float]] = field(default_factory=list)  # version, monotonic time of its arrival
    counting: bool = False
    last_answer: float = 0.0

    def error(self, what: str) -> None:
        if self.counting:
            self.errors[what] = self.errors.get(what, 0) + 1

    def report(self, answer: TimedAnswer) -> None:
        """Counts the answer to a report."""
        if answer.status != 200:
            self.error(spell("report", answer))
        elif self.counting:
            self.latencies_ms.append(answer.latency_ms)
            self.last_answer = time.monotonic()


def spell(what: str, answer: TimedAnswer) -> str:
    return f"{what} {answer.status}: {answer.problem or answer.body[:200].decode(errors='replace')}"


class AssignmentPoller:
    """Holds an agent's long poll."""

    def __init__(self, fleet: ReportSource, number: int, tally: LoadTally, host: str, port: int) -> None:
        self._fleet = fleet
        self._number = number
        self._tally = tally
        self._version = 0
        self.sender = RequestSender(host, port, self._answered, timeout_seconds=TIMEOUT_SECONDS)

    def poll(self) -> None:
        self.sender.send(time.monotonic(), self._fleet.poll(self._number, self._version, POLL_SECONDS))

    def _answered(self, answer: TimedAnswer) -> None:
        if answer.status not in (200, 204):
            self._tally.error(spell("poll", answer))
            asyncio.get_running_loop().call_later(1, self.poll)
            return
        if answer.status == 200:
            at = answer.body.index(b'"version":') + 10
            self._version = int(answer.body[at : at + 20].split(b",")[0].strip(b"}"))
            self._tally.decisions.append((self._version, time.monotonic()))
        self.poll()


async def run(host: str, port: int, tokens: list[str], rate: float, seconds: float) -> LoadTally:
    """Connect every agent, let each report once and the server warm up, then measure for `seconds`."""
    fleet, tally = ReportSource(tokens, f"{host}:{port}"), LoadTally()
    reporters = [RequestSender(host, port, tally.report, timeout_seconds=TIMEOUT_SECONDS) for _ in tokens]
    pollers = [AssignmentPoller(fleet, number, tally, host, port) for number in range(len(tokens))]
    senders = [*reporters, *(poller.sender for poller in pollers)]
    for at in range(0, len(senders), CONNECTS_AT_ONCE):
        await asyncio.gather(*(sender.connect() for sender in senders[at : at + CONNECTS_AT_ONCE]))
    for poller in pollers:
        poller.poll()
    gc.collect()
    gc.freeze()
    gc.disable()  # our own pauses are not the server's
    warm = min(rate, 500.0)
    await _report(fleet, reporters, warm, len(tokens) / warm)
    await _report(fleet, reporters, rate, WARM_SECONDS)
    await _settle(reporters)
    print("warm", file=sys.stderr, flush=True)
    tally.counting = True
    started = time.monotonic()
    await _report(fleet, reporters, rate, seconds)
    await _settle(reporters)
    for _ in range(sum(reporter.open_requests for reporter in reporters)):
        tally.error("no answer")
    tally.counting = False
    tally.last_answer = max(tally.last_answer - started, seconds)
    return tally


async def _report(fleet: ReportSource, reporters: Sequence[RequestSender], rate: float, seconds: float) -> None:
    started = time.monotonic()
    agents = cycle(enumerate(reporters))

    def send(due: float) -> None:
        number, reporter = next(agents)
        now = datetime.now(UTC)
        reporter.send(due, fleet.report(number, now, *stamps(now)))

    await send_when_due((started + place / rate for place in range(round(rate * seconds))), send)


async def _settle(reporters: Sequence[RequestSender]) -> None:
    until = time.monotonic() + PATIENCE_SECONDS
    for reporter in reporters:
        await reporter.settle(until - time.monotonic())


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
