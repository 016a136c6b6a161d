"""Follows higher rates beside a running plan: weights first, then new instances by HetSev's greedy, then the judge.

HetSev's heuristic says of which GPU type how many more instances a service needs. Each then goes to a GPU that is paid
already, the emptiest first, and else opens the cheapest; it takes the smallest share that carries its part there, and
only where all that runs there keeps its SLO. What the judge refuses is left out, and stays unserved.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from time import monotonic

import numpy as np

from solvers.hetsev.adding.place import OfferedShapes, Placer
from solvers.hetsev.adding.rooms import FreeRooms, Seat
from solvers.latency import latency_at, timeout_for
from solvers.planning.grids import ROUNDING, accepted_rate
from solvers.planning.judge import JudgedPlan, PlanEdit, Verdict, Violation
from solvers.planning.judge.services import AVAILABILITY_RULES
from solvers.planning.plan import NONE_UNSERVED_SHARE, Certificate, Plan, Unplaced, Unserved, unserved_rest
from solvers.planning.problem import Instance, Problem
from solvers.planning.replan.rates import shared
from solvers.planning.search.promise import keep

METHOD = "HetSev's greedy beside the running plan"
NO_BOUND = "the joint solver gave no plan, and the greedy proves no bound"
NO_ROOM = "no GPU has room for more of it while nothing moves"
WHAT_HELPS = "a GPU more, or the joint solver's next plan"
TRIES = 3  # with what the judge refuses left out, before all additions are
LEAST_SHARE = 1e-3  # of its rate is left on an instance that keeps its SLO at no rate: nothing stops here
SAME_SHARE = 1e-9


@dataclass
class Adder:
    """The running plan of a problem, judged and with its free room, ready for other rates."""

    problem: Problem
    judged: JudgedPlan
    rooms: FreeRooms
    lines: Mapping[str, list[Instance]]  # by service
    offered: OfferedShapes
    known: frozenset[tuple[str, str]]  # the rules that the running plan breaks already, and where
    late: frozenset[str]  # services with an instance that does not keep its SLO
    _applied: PlanEdit | None = None  # what the last answer changed in the judged plan

    @classmethod
    def of(cls, problem: Problem) -> Adder:
        """Reads and judges what runs."""
        running, jobs = (problem.state.running, problem.state.jobs) if problem.state else ((), ())
        plan = Plan(running, jobs, unserved_rest(problem, running), _waiting(problem))
        judged = JudgedPlan(problem, plan, keep)
        lines: dict[str, list[Instance]] = defaultdict(list)
        for line in running:
            lines[line.service].append(line)
        broken = judged.verdict().violations
        late = frozenset(
            found.where.split(" on ")[0] for found in broken if found.rule in ("slo_holds", "utilization_holds")
        )
        return cls(
            problem, judged, FreeRooms.of(problem, judged), lines, OfferedShapes(problem),
            frozenset((found.where, found.rule) for found in broken), late,
        )  # fmt: skip

    def add(self, rates: Mapping[str, float] | None = None) -> tuple[Plan, Verdict]:
        """Returns the plan for these rates, and the judge's verdict. The adder can be asked again."""
        began = monotonic()
        problem = self.problem.with_rates(rates or {})
        moved = self._moved(problem)
        held: set[str] = set()
        for left in range(TRIES, -1, -1):
            self._restore()
            adding = _Adding(self, problem, held if left else set(moved))
            for name in moved:
                adding.serve(name)
            self._applied = adding.edit()
            verdict = self.judged.apply(self._applied, problem)
            plan = self._plan(problem, adding, verdict, monotonic() - began)
            refused = self.refused(verdict)
            if not refused or not left:
                break
            held |= adding.at_fault(refused) or set(moved)
        return plan, verdict

    def prepare(self) -> None:
        """Reads everything that no rate changes."""
        self._restore()
        self.offered.read_all()

    def _restore(self) -> None:
        """Takes the last answer out of the judged plan, before the next question, so that no answer waits for it."""
        edit = self._applied
        if edit is None:
            return
        unserved = {entry.service: entry for entry in unserved_rest(self.problem, self._all_lines())}
        back = {name: unserved.get(name) for name in edit.unserved}
        self.judged.apply(PlanEdit(stop=edit.start, start=edit.stop, unserved=back), self.problem)
        self._applied = None

    def refused(self, verdict: Verdict) -> list[Violation]:
        """Returns the rules that an addition broke; as in a quick step, copies may be nearer than promised."""
        return [
            found
            for found in verdict.violations
            if (found.where, found.rule) not in self.known and found.rule not in AVAILABILITY_RULES
        ]

    def _moved(self, problem: Problem) -> list[str]:
        """Returns the services whose rate does not fit what runs for them, the most urgent first.

        Of equals, those that fewest GPU types carry: the others go elsewhere if these take the room.
        """
        types: dict[str, set[str]] = defaultdict(set)
        for model, _, gpu_type in problem.profiles:
            types[model].add(gpu_type)
        found = []
        for name, service in problem.services.items():
            carried = sum(line.rate_per_second for line in self.lines.get(name, ()))
            if name in self.late or abs(carried - service.rate_per_second) > SAME_SHARE * service.rate_per_second:
                lack = max(service.rate_per_second - carried, 0.0)
                found.append((-service.priority, len(types[service.model]), -lack, name))
        return [name for *_, name in sorted(found)]

    def _all_lines(self) -> list[Instance]:
        return [line for lines in self.lines.values() for line in lines]

    def _plan(self, problem: Problem, adding: _Adding, verdict: Verdict, seconds: float) -> Plan:
        state = problem.state
        lines = [adding.now.get(id(line), line) for line in (state.running if state else ())] + adding.new
        unserved = tuple(adding.unserved[name] for name in sorted(adding.unserved))
        certificate = Certificate(
            verdict.cost, None, METHOD, adding.placer.looked_at, seconds, no_bound_reason=NO_BOUND
        )  # fmt: skip
        return Plan(
            tuple(lines), state.jobs if state else (), unserved, _waiting(problem), changes=verdict.changes,
            certificate=certificate,
        )  # fmt: skip


class _Adding:
    """One pass over the services whose rate does not fit what runs."""

    def __init__(self, adder: Adder, problem: Problem, held: Collection[str]) -> None:
        self.problem, self._held, self._adder = problem, held, adder
        self.rooms = adder.rooms.copied(problem)
        self.placer = Placer(problem, self.rooms, adder.offered)
        self.unserved: dict[str, Unserved] = {}
        self.now: dict[int, Instance] = {}  # by `id()` of a line that runs: the line as it is now
        self.new: list[Instance] = []
        self._number = {place: at for at, place in enumerate(self.rooms.places)}

    def serve(self, name: str) -> None:
        """Carries the rate of a service: by what runs as far as that goes, then by new instances."""
        service = self.problem.services[name]
        seats = self._seats(name)
        caps = self._caps(seats)
        carried = [max(cap, LEAST_SHARE * seat.line.rate_per_second) for seat, cap in zip(seats, caps, strict=True)]
        missing = service.rate_per_second - sum(carried)
        if missing > NONE_UNSERVED_SHARE * service.rate_per_second and name not in self._held:
            for seat, rate in zip(seats, carried, strict=True):
                seat.line = replace(seat.line, rate_per_second=rate)
            if added := self.placer.add(service, missing, len(seats)):
                seats += added
                caps = self._caps(seats)
        self._share(seats, caps, service.rate_per_second, service.min_instances)
        rest = service.rate_per_second - sum(seat.line.rate_per_second for seat in seats)
        if rest > NONE_UNSERVED_SHARE * service.rate_per_second:
            self.unserved[name] = Unserved(name, rest, NO_ROOM, WHAT_HELPS)

    def edit(self) -> PlanEdit:
        """Returns what differs from what runs."""
        stop, start = [], []
        for room in self.rooms.rooms.values():
            for seat in room.seats:
                if seat.before is not None and seat.line == seat.before:
                    continue
                line = self._predicted(seat)
                start.append(line)
                if seat.before is None:
                    self.new.append(line)
                else:
                    stop.append(seat.before)
                    self.now[id(seat.before)] = line
        self.new.sort(key=lambda line: line.id)
        moved = {*self.unserved, *(line.service for line in start)}
        return PlanEdit(tuple(stop), tuple(start), unserved={name: self.unserved.get(name) for name in sorted(moved)})

    def at_fault(self, refused: Collection[Violation]) -> set[str]:
        """Returns the services whose additions the judge names, by their name or their GPU."""
        words = [found.where for found in refused]
        return {
            line.service
            for line in self.new
            if any(line.service in where or f"{line.node}/{line.gpu}" in where or line.node == where for where in words)
        }

    def _seats(self, name: str) -> list[Seat]:
        found: list[Seat] = []
        for place in sorted({line.place for line in self._adder.lines.get(name, ()) if line.place in self._number}):
            found += [seat for seat in self.rooms.room(self._number[place]).seats if seat.name == name]
        return found

    def _caps(self, seats: Collection[Seat]) -> list[float]:
        policy = self.problem.policy
        return [accepted_rate(policy, seat.service, seat.line.batch, self._exec_ms(seat)) * ROUNDING for seat in seats]

    def _exec_ms(self, seat: Seat) -> float:
        at = self._number[seat.line.place]
        room = self.rooms.room(at)
        return room.exec_ms(self.problem.policy, seat, room.pressure(), float(self.rooms.sm[at]))

    def _share(self, seats: list[Seat], caps: list[float], rate: float, least: int) -> None:
        """Shares the rate among all instances so that as few as possible get another one."""
        if not seats:
            return
        now = np.array([seat.before.rate_per_second if seat.before else 0.0 for seat in seats])
        rates = shared(now, np.maximum(caps, LEAST_SHARE * now), rate, least if len(seats) >= least else 1)
        for seat, each in zip(seats, rates.tolist(), strict=True):
            if seat.before and abs(each - seat.before.rate_per_second) <= SAME_SHARE * each:
                seat.line = self._timed(seat, seat.before, seat.before.rate_per_second)
            else:
                seat.line = self._timed(seat, seat.line, each)

    def _timed(self, seat: Seat, line: Instance, rate: float) -> Instance:
        """Returns the line with a rate and the batch timeout that it needs; with its own where none is enough."""
        judged = self._exec_ms(seat) * (1 + self.problem.policy.exec_margin)
        service = seat.service
        found = timeout_for(line.batch, judged, service.slo_ms, service.percentile, rate, service.variation)
        if found is None or abs(found - line.batch_timeout_ms) <= SAME_SHARE * max(1.0, found):
            found = line.batch_timeout_ms
        if (rate, found) == (line.rate_per_second, line.batch_timeout_ms):
            return line
        return replace(line, rate_per_second=rate, batch_timeout_ms=found)

    def _predicted(self, seat: Seat) -> Instance:
        exec_ms, service, line = self._exec_ms(seat), seat.service, seat.line
        judged = exec_ms * (1 + self.problem.policy.exec_margin)
        wait_ms = min(line.batch_timeout_ms, judged)
        latency_ms = latency_at(
            line.batch, judged, line.rate_per_second, service.percentile, wait_ms, service.variation
        )  # fmt: skip
        return replace(line, exec_ms=exec_ms, latency_ms=float(latency_ms))


def add_missing(problem: Problem) -> Plan:
    """Returns the plan that runs with what it leaves unserved at the problem's rates added."""
    return Adder.of(problem).add()[0]


def _waiting(problem: Problem) -> tuple[Unplaced, ...]:
    running = {placed.job for placed in problem.state.jobs} if problem.state else set()
    return tuple(
        Unplaced(name, "jobs wait while the joint solver gives no plan")
        for name in sorted(problem.jobs.keys() - running)
    )
