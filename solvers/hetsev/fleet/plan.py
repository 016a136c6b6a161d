"""Plans a fleet as HetSev does: what runs stays where it is, and each service starts or stops some instances.

For each service the heuristic over time (H2) says when, the integer program (H1) says how many of which type, and the
fair rounds with worst fit (H3) say where. An SLO is a latency and a percentile (H4), which the rates respect.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from solvers.hetsev.fleet.counts import RULES, InstanceCounts, choose_starts, decide_counts
from solvers.hetsev.queues import PendingInstance, sort_fairly
from solvers.hetsev.scaling.controller import ScalingWatch
from solvers.planning.carried import accepted_rates, admitted, carry
from solvers.planning.fleet.offers import SHARED_PRESSURE, FleetShape, read_offers, why_no_shape
from solvers.planning.fleet.rooms import FleetRooms
from solvers.planning.plan import Unserved
from solvers.planning.planner_draft import PlannerBudget, PlannerDraft
from solvers.planning.problem import Instance, Knowledge, PlacedJob, Problem

MOST_ROUNDS = 200  # of counting and placing; each places an instance or finds a shape without room
Starts = list[tuple[str, FleetShape]]  # of a service each


@dataclass(slots=True)
class FleetMemory:
    """The moments, in seconds, that the heuristic waits from; `now` is None where time does not matter."""

    now: float | None
    watches: dict[str, ScalingWatch] = field(default_factory=dict)
    waiting: dict[str, float] = field(default_factory=dict)  # since when an instance had no place

    @classmethod
    def recall(cls, knowledge: Knowledge, now: datetime | None) -> FleetMemory:
        over, spare = (_moments(knowledge, name) for name in ("overSince", "spareSince"))
        watches = {name: ScalingWatch(over.get(name), spare.get(name)) for name in {*over, *spare}}
        return cls(now.timestamp() if now else None, watches, _moments(knowledge, "waitingSince"))

    def watch(self, service: str) -> ScalingWatch:
        return self.watches.get(service, ScalingWatch())

    def waited_seconds(self, service: str) -> float:
        return 0.0 if self.now is None else max(0.0, self.now - self.waiting.get(service, self.now))

    def wait(self, services: set[str]) -> None:
        """Notes which services have an instance without a place."""
        at = 0.0 if self.now is None else self.now
        self.waiting = {name: self.waiting.get(name, at) for name in sorted(services)}

    def knowledge(self) -> Knowledge:
        if self.now is None:
            return {}
        over = {name: watch.over_since for name, watch in sorted(self.watches.items()) if watch.over_since is not None}
        spare = {
            name: watch.spare_since for name, watch in sorted(self.watches.items()) if watch.spare_since is not None
        }
        return {"overSince": over, "spareSince": spare, "waitingSince": self.waiting}


def _moments(knowledge: Knowledge, name: str) -> dict[str, float]:
    found: Mapping[str, float] = knowledge.get(name, {})
    return {service: float(at) for service, at in found.items()}


def plan(problem: Problem, knowledge: Knowledge, budget: PlannerBudget) -> PlannerDraft:
    """Returns HetSev's next plan. Without a time, as in files that state none, nothing waits to be acted upon."""
    state = problem.state
    memory = FleetMemory.recall(knowledge, state.now if state else None)
    jobs = state.jobs if state else ()
    fleet = _Fleet(problem, admitted(problem, state.running, jobs) if state else [], jobs)
    starts = fleet.decide(memory)
    acting, rounds = {name for name, _ in starts}, 0
    while starts and rounds < MOST_ROUNDS:
        rounds += 1
        fleet.place(starts, memory, budget.seed)
        starts = fleet.still_short(acting)
    instances, rests = carry(problem, fleet.seats, jobs)
    memory.wait(fleet.list_without_place())
    unserved = tuple(Unserved(name, rate, fleet.why(name, memory)) for name, rate in sorted(rests.items()))
    return PlannerDraft(tuple(instances), unserved, fleet.describe(rounds), memory.knowledge())


class _Fleet:
    """The instances while the plan is made, by service."""

    def __init__(self, problem: Problem, seats: Sequence[Instance], jobs: Sequence[PlacedJob]) -> None:
        self.problem = problem
        self.seats = list(seats)
        self.rooms = FleetRooms(problem, seats, jobs, SHARED_PRESSURE)
        self._jobs = jobs
        order = sorted(problem.services.values(), key=lambda service: (-service.priority, service.name))
        offers, pools = read_offers(problem), self.rooms.pools
        shapes = {
            service.name: {pool: found for pool in pools if (found := offers.find_best_shapes(service, [pool]))}
            for service in order
        }
        self.counts = {service.name: InstanceCounts(service, shapes[service.name], [], []) for service in order}
        self._count()

    def decide(self, memory: FleetMemory) -> Starts:
        """Returns what each service starts, after stopping what it does not need."""
        starts: Starts = []
        gone: list[Instance] = []
        for name, counts in self.counts.items():
            if memory.now is None:
                found = choose_starts(self.problem, counts, self.rooms)
            else:
                found, stops, watch = decide_counts(self.problem, counts, self.rooms, memory.watch(name), memory.now)
                memory.watches[name] = watch
                gone += stops
            starts += [(name, shape) for shape in found]
        if gone:
            left = {id(line) for line in gone}
            self.seats = [seat for seat in self.seats if id(seat) not in left]
            self.rooms = FleetRooms(self.problem, self.seats, self._jobs, SHARED_PRESSURE)
            self._count()
        return starts

    def place(self, starts: Starts, memory: FleetMemory, seed: int) -> None:
        """Places instances by fair rounds; a shape without a place is not tried again for its service (H3)."""
        wanted = {f"{name} {number:06d}": (name, shape) for number, (name, shape) in enumerate(starts)}
        pending = [
            PendingInstance(key, self.problem.services[name].model, shape.memory_gib, memory.waited_seconds(name))
            for key, (name, shape) in wanted.items()
        ]
        for instance in sort_fairly(pending, seed=seed):
            name, shape = wanted[instance.name]
            service = self.problem.services[name]
            place = self.rooms.put(shape, service)
            if place is None:
                self.counts[name].full.add(shape)
                continue
            self.seats.append(
                Instance(
                    self.rooms.names.numbered(name), name, *place, shape.variant, shape.batch, 0.0, shape.sm_percent,
                    shape.memory_gib, self.rooms.clock_mhz(place), 0.0,
                )
            )  # fmt: skip
        self._count()

    def still_short(self, acting: Iterable[str]) -> Starts:
        """Returns what the services that act start besides, as neighbours slow them or a shape had no place."""
        starts: Starts = []
        for name in sorted(acting):
            counts = self.counts[name]
            if counts.short or counts.wanted:
                starts += [(name, shape) for shape in choose_starts(self.problem, counts, self.rooms)]
        return starts

    def list_without_place(self) -> set[str]:
        return {name for name, counts in self.counts.items() if counts.full and (counts.short or counts.wanted)}

    def why(self, name: str, memory: FleetMemory) -> str:
        """Returns why a part of a service's rate is unserved."""
        counts = self.counts[name]
        if not counts.shapes:
            return why_no_shape(self.problem)
        since = memory.watch(name).over_since
        if memory.now is not None and since is not None and not counts.full:
            waited = memory.now - since
            return f"above the threshold for {waited:.0f} s; HetSev starts more after {RULES.held_seconds:.0f} s"
        shapes = [shape for known in counts.shapes.values() for shape in known]
        smallest = min(shapes, key=lambda shape: (shape.sm_percent, shape.memory_gib))
        return self.rooms.why_not(smallest, counts.service)

    def describe(self, rounds: int) -> str:
        """Names what chose the numbers, and how often."""
        methods = Counter(counts.method for counts in self.counts.values() if counts.method)
        chosen = ", ".join(f"{method} for {_count(number, 'service')}" for method, number in sorted(methods.items()))
        return f"{chosen}; worst fit in {_count(rounds, 'round')}" if chosen else "nothing to start"

    def _count(self) -> None:
        """Finds what each instance carries among its neighbours."""
        rates = accepted_rates(self.problem, self.seats, self._jobs)
        mine: Mapping[str, list[tuple[Instance, float]]] = {name: [] for name in self.counts}
        for seat, rate in zip(self.seats, rates, strict=True):
            mine[seat.service].append((seat, rate))
        for name, own in mine.items():
            counts = self.counts[name]
            self.counts[name] = replace(counts, seats=[seat for seat, _ in own], most=[rate for _, rate in own])


def _count(number: int, noun: str) -> str:
    return f"1 {noun}" if number == 1 else f"{number} {noun}s"
