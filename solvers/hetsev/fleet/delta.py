"""Adds what a running plan leaves unserved: weights first, then new instances by HetSev's greedy, then the judge.

Nothing stops, moves or takes another share. HetSev's heuristic says of which GPU type how many more instances a service
needs. Each then goes to a GPU that is paid already, the emptiest first, and else opens the cheapest; it takes the
smallest share that carries its part there, and only where all that runs there keeps its SLO. Language models follow
their rates as far as their instances carry them; one that keeps its SLO at no rate is left next to nothing. What the
judge refuses is left out, and stays unserved.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from time import monotonic

from solvers.hetsev.fleet.adding import FleetAdding
from solvers.planning.fleet.trial_rooms import TrialRooms
from solvers.planning.judge import JudgedPlan, PlanEdit, Resident, Verdict, Violation
from solvers.planning.judge.readings import JudgedGpu
from solvers.planning.judge.services import AVAILABILITY_RULES, LATE_RULES
from solvers.planning.plan import Certificate, Plan, Unplaced, list_unserved
from solvers.planning.problem import Instance, Place, Problem
from solvers.planning.search.promise import keep

METHOD = "HetSev's greedy beside the running plan"
NO_BOUND = "the joint solver gave no plan, and the greedy proves no bound"
TRIES = 3  # with what the judge refuses left out, before all additions are
SAME_SHARE = 1e-9


@dataclass
class FleetDelta:
    """The running plan of a problem, judged and with its free room, ready for other rates."""

    problem: Problem
    judged: JudgedPlan
    adding: FleetAdding
    lines: Mapping[str, list[Instance]]  # by service
    known: frozenset[tuple[str, str]]  # the rules that the running plan breaks already, and where
    late: frozenset[str]  # services with an instance that does not keep its SLO
    types: Mapping[str, int]  # of GPUs that carry each model
    _applied: PlanEdit | None = None  # what the last answer changed in the judged plan

    @classmethod
    def of(cls, problem: Problem) -> FleetDelta:
        """Reads and judges what runs."""
        running, jobs = (problem.state.running, problem.state.jobs) if problem.state else ((), ())
        judged = JudgedPlan(problem, Plan(running, jobs, list_unserved(problem, running), _waiting(problem)), keep)
        lines: dict[str, list[Instance]] = defaultdict(list)
        for line in running:
            lines[line.service].append(line)
        broken = judged.verdict().violations
        late = frozenset(found.owner for found in broken if found.rule in LATE_RULES)
        known = frozenset((found.where, found.rule) for found in broken)
        types = Counter(model for model, _ in {(model, gpu_type) for model, _, gpu_type in problem.profiles})
        return cls(problem, judged, FleetAdding(problem, _read_rooms(problem, judged)), lines, known, late, types)

    def add(self, rates: Mapping[str, float] | None = None) -> tuple[Plan, Verdict]:
        """Returns the plan for these rates, and the judge's verdict. It can be asked again."""
        began = monotonic()
        problem = self.problem.change_rates(rates or {})
        moved = self._find_moved(problem)
        held: set[str] = set()  # nothing of them starts
        kept: set[str] = set()  # their instances keep their parts of the rate too
        for left in range(TRIES, -1, -1):
            self._restore()
            self.adding.begin(problem)
            for name in moved:
                self.adding.serve(name, may_start=bool(left) and name not in held, may_share=name not in kept)
            self._applied = self.adding.edit()
            verdict = self.judged.apply(self._applied, problem)
            plan = self._plan(problem, verdict, monotonic() - began)
            refused = self._list_refused(verdict)
            if not refused or not left:
                break
            at_fault = self.adding.find_at_fault(refused) or set(moved)
            kept |= at_fault & held
            held |= at_fault
        return plan, verdict

    def prepare(self) -> None:
        """Takes the last answer back, and reads everything that no rate changes."""
        self._restore()
        for service in self.problem.services.values():
            if service.tokens is None:
                self.adding.read_shapes(service)

    def _restore(self) -> None:
        """Takes the last answer out of the judged plan, before the next question, so that no answer waits for it."""
        edit = self._applied
        if edit is None:
            return
        unserved = {entry.service: entry for entry in list_unserved(self.problem, self._all_lines())}
        back = {name: unserved.get(name) for name in edit.unserved}
        self.judged.apply(PlanEdit(stop=edit.start, start=edit.stop, unserved=back), self.problem)
        self._applied = None

    def _list_refused(self, verdict: Verdict) -> list[Violation]:
        """Returns the rules that an addition broke; as in a quick step, copies may be nearer than promised."""
        return [
            found
            for found in verdict.violations
            if (found.where, found.rule) not in self.known and found.rule not in AVAILABILITY_RULES
        ]

    def _find_moved(self, problem: Problem) -> list[str]:
        """Returns the services whose rate does not fit what runs for them, the most urgent first.

        Of equals, those that fewest GPU types carry: the others go elsewhere if these take the room.
        """
        found = []
        for name, service in problem.services.items():
            carried = sum(line.rate_per_second for line in self.lines.get(name, ()))
            if name in self.late or abs(carried - service.rate_per_second) > SAME_SHARE * service.rate_per_second:
                lack = max(service.rate_per_second - carried, 0.0)
                found.append((-service.priority, self.types[service.model], -lack, name))
        return [name for *_, name in sorted(found)]

    def _all_lines(self) -> list[Instance]:
        return [line for lines in self.lines.values() for line in lines]

    def _plan(self, problem: Problem, verdict: Verdict, seconds: float) -> Plan:
        state, adding = problem.state, self.adding
        lines = [adding.now.get(id(line), line) for line in (state.running if state else ())] + adding.new
        unserved = tuple(adding.unserved[name] for name in sorted(adding.unserved))
        certificate = Certificate(verdict.cost, None, METHOD, adding.looked_at, seconds, no_bound_reason=NO_BOUND)
        return Plan(
            tuple(lines), state.jobs if state else (), unserved, _waiting(problem), changes=verdict.changes,
            certificate=certificate,
        )  # fmt: skip


def add_missing(problem: Problem) -> Plan:
    """Returns the plan that runs with what it leaves unserved at the problem's rates added."""
    return FleetDelta.of(problem).add()[0]


def _read_rooms(problem: Problem, judged: JudgedPlan) -> TrialRooms:
    """Returns the room of the fleet; closed are GPUs with a job that may become late, or a line that cannot be read."""
    running, jobs = (problem.state.running, problem.state.jobs) if problem.state else ((), ())
    places = [(node.name, index) for node in problem.nodes.values() for index in node.gpus]
    gpus = {place: gpu for place in places if (gpu := judged.on(place))}
    known = {id(line.instance) for gpu in gpus.values() for line in gpu.residents if _is_known(line, gpus)}
    placed = [job for job in jobs if all(place in gpus for place in job.places)]
    rooms = TrialRooms(problem, [line for line in running if id(line) in known], placed)
    for place, gpu in gpus.items():
        is_read = all(id(line.instance) in known for line in gpu.residents)
        if not is_read or any(job.job is None or job.job.deadline is not None for job in gpu.jobs):
            rooms.close(place)
    rooms.keep()
    return rooms


def _is_known(line: Resident, gpus: Mapping[Place, JudgedGpu]) -> bool:
    """Returns whether all is known of a line that its room needs."""
    is_read = line.service is not None and bool(line.alone_ms or line.service.tokens)
    return is_read and all(place in gpus for place in line.instance.places)


def _waiting(problem: Problem) -> tuple[Unplaced, ...]:
    running = {placed.job for placed in problem.state.jobs} if problem.state else set()
    return tuple(
        Unplaced(name, "jobs wait while the joint solver gives no plan")
        for name in sorted(problem.jobs.keys() - running)
    )
