"""The load generator, a process of its own: reports at fixed moments, whatever became of those before.

What to do comes as JSON on stdin; what was measured goes, as JSON, into the file named there.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import resource
import signal
import sys
import time
from collections.abc import Callable, Sequence
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
FILES_BESIDE_CONNECTIONS = 64


@dataclass(frozen=True, slots=True)
class Addresses:
    """The servers, which share the agents evenly."""

    host: str
    ports: Sequence[int]

    def sender(self, number: int, answered: Callable[[TimedAnswer], None]) -> RequestSender:
        port = self.ports[number % len(self.ports)]
        return RequestSender(self.host, port, answered, timeout_seconds=TIMEOUT_SECONDS)


@dataclass(slots=True)
class LoadTally:
    """The measurements of a load."""

    latencies_ms: list[float] = field(default_factory=list)
    errors: dict[str, int] = field(default_factory=dict)
    decisions: list[tuple[int, float]] = field(default_factory=list)  # version, monotonic time of its arrival
    counting: bool = False
    last_answer: float = 0.0
    killed_at: float = 0.0  # monotonic; 0: nothing was
    moved: int = 0  # agents that another server answered after theirs was gone
    back_at: float = 0.0  # when the last agent of the killed server was answered by another

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


class Reporter:
    """Sends an agent's reports to its server; to the next one once that is gone."""

    def __init__(self, addresses: Addresses, number: int, tally: LoadTally) -> None:
        self._addresses = addresses
        self._number = number
        self._tally = tally
        self.sender = addresses.sender(number, self._answered)
        self.is_lost = False  # its server has gone, and no other one has answered yet

    def _answered(self, answer: TimedAnswer) -> None:
        if answer.status == 0:
            self.is_lost = True
            self._number += 1
            self.sender = self._addresses.sender(self._number, self._answered)
        elif self.is_lost and answer.status == 200:
            self.is_lost = False
            self._tally.back_at = time.monotonic()
            self._tally.moved += 1
        self._tally.report(answer)


class AssignmentPoller:
    """Holds an agent's long poll at its server; at the next one once that is gone."""

    def __init__(self, fleet: ReportSource, number: int, tally: LoadTally, addresses: Addresses) -> None:
        self._fleet = fleet
        self._number = self._place = number
        self._tally = tally
        self._addresses = addresses
        self._version = 0
        self.sender = addresses.sender(number, self._answered)

    def poll(self) -> None:
        self.sender.send(time.monotonic(), self._fleet.poll(self._number, self._version, POLL_SECONDS))

    def _answered(self, answer: TimedAnswer) -> None:
        if answer.status == 0:
            self._place += 1
            self.sender = self._addresses.sender(self._place, self._answered)
        if answer.status not in (200, 204):
            self._tally.error(spell("poll", answer))
            asyncio.get_running_loop().call_later(1, self.poll)
            return
        if answer.status == 200:
            at = answer.body.index(b'"version":') + 10
            self._version = int(answer.body[at : at + 20].split(b",")[0].strip(b"}"))
            self._tally.decisions.append((self._version, time.monotonic()))
        self.poll()


async def run(
    addresses: Addresses, tokens: list[str], first: int, rate: float, seconds: float, killed: int
) -> LoadTally:
    """Connect every agent, let each report once and the servers warm up, then measure for `seconds`.

    The agents have the numbers from `first` on. Halfway it kills the process `killed`, if there is one.
    """
    fleet, tally = ReportSource(tokens, f"{addresses.host}:{addresses.ports[0]}", first), LoadTally()
    reporters = [Reporter(addresses, number, tally) for number in range(len(tokens))]
    pollers = [AssignmentPoller(fleet, number, tally, addresses) for number in range(len(tokens))]
    senders = [reporter.sender for reporter in reporters] + [poller.sender for poller in pollers]
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
    if killed:
        await _report(fleet, reporters, rate, seconds / 2)
        tally.killed_at = time.monotonic()
        os.kill(killed, signal.SIGKILL)
    await _report(fleet, reporters, rate, seconds / 2 if killed else seconds)
    await _settle(reporters)
    for _ in range(sum(reporter.sender.open_requests for reporter in reporters)):
        tally.error("no answer")
    tally.counting = False
    tally.last_answer = max(tally.last_answer - started, seconds)
    return tally


async def _report(fleet: ReportSource, reporters: Sequence[Reporter], rate: float, seconds: float) -> None:
    started = time.monotonic()
    agents = cycle(enumerate(reporters))

    def send(due: float) -> None:
        number, reporter = next(agents)
        now = datetime.now(UTC)
        reporter.sender.send(due, fleet.report(number, now, *stamps(now)))

    await send_when_due((started + place / rate for place in range(round(rate * seconds))), send)


async def _settle(reporters: Sequence[Reporter]) -> None:
    until = time.monotonic() + PATIENCE_SECONDS
    for reporter in reporters:
        await reporter.sender.settle(until - time.monotonic())


def _raise_file_limit(wanted: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < wanted:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, max(hard, wanted)))
        except (ValueError, OSError):
            raise SystemExit(f"{wanted} open files are needed, and this user may have {hard}: see ulimit -n") from None


def main() -> None:
    """Read what to do from stdin, do it, say what was measured."""
    import uvloop

    order = json.loads(sys.stdin.readline())
    result = Path(order.pop("result"))
    addresses = Addresses(order.pop("host"), order.pop("ports"))
    _raise_file_limit(2 * len(order["tokens"]) + FILES_BESIDE_CONNECTIONS)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        tally = runner.run(run(addresses, **order))
    answer = {
        "latencies_ms": tally.latencies_ms,
        "errors": tally.errors,
        "decisions": tally.decisions,
        "seconds": tally.last_answer,
        "cpu_seconds": time.process_time(),
        "killed_at": tally.killed_at,
        "back_at": tally.back_at,
        "moved": tally.moved,
    }
    result.write_text(json.dumps(answer))


if __name__ == "__main__":
    main()
