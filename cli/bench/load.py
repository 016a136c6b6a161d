"""The load generator, a process of its own: reports at fixed moments, whatever became of those before.

What to do comes as JSON on stdin; what was measured goes, as JSON, into the file named there.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import random
import resource
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import cycle
from pathlib import Path

from agents.control.agent import LONGEST_PAUSE_SECONDS
from cli.bench.reports import ReportSource, stamps
from simulation.real.open_loop import RequestSender, TimedAnswer, send_when_due

PATIENCE_SECONDS = 10.0  # for answers still out at the end
POLL_SECONDS = 30
TIMEOUT_SECONDS = 2.0 * POLL_SECONDS
WARM_SECONDS = 3.0
FIRST_PAUSE_SECONDS = 1.0  # after a try that failed, too; as agents wait
CONNECTS_AT_ONCE = 50
FILES_BESIDE_CONNECTIONS = 64
UNANSWERED = "no answer"  # among the errors: a report that was still waiting at the end


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

    def report(self, answer: TimedAnswer, was_lost: bool) -> None:
        """Counts a report that was stored; `was_lost` if its agent's server had gone before."""
        now = time.monotonic()
        if self.counting:
            self.latencies_ms.append(answer.latency_ms)
            self.last_answer = now
        if was_lost:
            self.back_at = now
            self.moved += 1


def spell(what: str, answer: TimedAnswer) -> str:
    return f"{what} {answer.status}: {answer.problem or answer.body[:200].decode(errors='replace')}"


class AgentLink:
    """An agent's connection to its server. A request without an answer is made again as an agent makes it.

    At once at the next server, as a balancer would have it; then after pauses that double, with jitter.
    """

    def __init__(self, addresses: Addresses, number: int, answered: Callable[[TimedAnswer], None]) -> None:
        self._addresses = addresses
        self._place = number
        self._answered = answered
        self._pause_seconds = 0.0  # before the next try
        self.sender = addresses.sender(number, answered)

    def succeed(self) -> None:
        self._pause_seconds = 0.0

    def try_again(self, answer: TimedAnswer, send: Callable[[], None]) -> None:
        """Calls `send` when the next try is due; another server gets it if this one has not answered."""
        if answer.status == 0:
            self._place += 1
            self.sender = self._addresses.sender(self._place, self._answered)
        elif not self._pause_seconds:
            self._pause_seconds = FIRST_PAUSE_SECONDS
        asyncio.get_running_loop().call_later(self._pause_seconds * (0.5 + random.random()), send)  # noqa: S311
        self._pause_seconds = min(LONGEST_PAUSE_SECONDS, 2 * self._pause_seconds or FIRST_PAUSE_SECONDS)


class Reporter:
    """Sends an agent's reports, each until it is answered."""

    def __init__(self, fleet: ReportSource, number: int, tally: LoadTally, addresses: Addresses) -> None:
        self._fleet = fleet
        self._number = number
        self._tally = tally
        self.link = AgentLink(addresses, number, self._answered)
        self._is_lost = False  # its server has gone, and no other one has answered yet
        self.is_waiting = False  # for an answer, or for the next try

    def report(self, due: float) -> None:
        self.is_waiting = True
        now = datetime.now(UTC)
        self.link.sender.send(due, self._fleet.report(self._number, now, *stamps(now)))

    def _answered(self, answer: TimedAnswer) -> None:
        if answer.status == 200:
            self.link.succeed()
            self._tally.report(answer, was_lost=self._is_lost)
            self._is_lost = False
            self.is_waiting = self.link.sender.open_requests > 0
            return
        self._is_lost = self._is_lost or answer.status == 0
        self._tally.error(spell("report", answer))
        self.link.try_again(answer, lambda: self._report_again(answer.due))

    def _report_again(self, due: float) -> None:
        if self.is_waiting and not self.link.sender.open_requests:  # else a later report has taken its place
            self.report(due)


class AssignmentPoller:
    """Holds an agent's long poll."""

    def __init__(self, fleet: ReportSource, number: int, tally: LoadTally, addresses: Addresses) -> None:
        self._fleet = fleet
        self._number = number
        self._tally = tally
        self._version = 0
        self.link = AgentLink(addresses, number, self._answered)

    def poll(self) -> None:
        self.link.sender.send(time.monotonic(), self._fleet.poll(self._number, self._version, POLL_SECONDS))

    def _answered(self, answer: TimedAnswer) -> None:
        if answer.status not in (200, 204):
            self._tally.error(spell("poll", answer))
            self.link.try_again(answer, self.poll)
            return
        self.link.succeed()
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
    reporters = [Reporter(fleet, number, tally, addresses) for number in range(len(tokens))]
    pollers = [AssignmentPoller(fleet, number, tally, addresses) for number in range(len(tokens))]
    links = [reporter.link for reporter in reporters] + [poller.link for poller in pollers]
    for at in range(0, len(links), CONNECTS_AT_ONCE):
        await asyncio.gather(*(link.sender.connect() for link in links[at : at + CONNECTS_AT_ONCE]))
    for poller in pollers:
        poller.poll()
    gc.collect()
    gc.freeze()
    gc.disable()  # our own pauses are not the server's
    warm = min(rate, 500.0)
    await _report(reporters, warm, len(tokens) / warm)
    await _report(reporters, rate, WARM_SECONDS)
    await _settle(reporters)
    print("warm", file=sys.stderr, flush=True)
    tally.counting = True
    started = time.monotonic()
    if killed:
        await _report(reporters, rate, seconds / 2)
        tally.killed_at = time.monotonic()
        os.kill(killed, signal.SIGKILL)
    await _report(reporters, rate, seconds / 2 if killed else seconds)
    await _settle(reporters)
    for _ in range(sum(reporter.is_waiting for reporter in reporters)):
        tally.error(UNANSWERED)
    tally.counting = False
    tally.last_answer = max(tally.last_answer - started, seconds)
    return tally


async def _report(reporters: Sequence[Reporter], rate: float, seconds: float) -> None:
    started = time.monotonic()
    agents = cycle(reporters)
    moments = (started + place / rate for place in range(round(rate * seconds)))
    await send_when_due(moments, lambda due: next(agents).report(due))


async def _settle(reporters: Sequence[Reporter]) -> None:
    until = time.monotonic() + PATIENCE_SECONDS
    while any(reporter.is_waiting for reporter in reporters) and time.monotonic() < until:
        await asyncio.sleep(0.05)


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
