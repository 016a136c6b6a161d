"""Decides how many instances of each shape a service starts or stops: HetSev, section 4.1."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil, inf

from solvers.hetsev.scaling import InstanceType, ScalingBudget, ScalingProblem, ScalingPromise, scale
from solvers.hetsev.scaling.controller import ScalingRules, ScalingWatch, decide
from solvers.hetsev.scaling.greedy import EXACTLY, out
from solvers.hetsev.scaling.problem import Actions
from solvers.planning.fleet.offers import FleetShape, GpuPool
from solvers.planning.fleet.rooms import FleetRooms
from solvers.planning.problem import Instance, Problem, Service

NODES = 2_000  # of an integer program's search; the programs have a variable for each pool
SOLVERS = ("ortools", "cbc")  # the second is asked where the first finds nothing
# A rate is what an instance carries at the threshold, the policy's utilization, so that nothing is left of it to apply.
RULES = ScalingRules(saturation=1.0)


@dataclass(slots=True)
class InstanceCounts:
    """A service, the shapes that it may start, and the instances that run, each with the rate that it carries."""

    service: Service
    shapes: Mapping[GpuPool, Sequence[FleetShape]]
    seats: list[Instance]
    most: list[float]
    full: set[FleetShape] = field(default_factory=set)  # shapes without a place for another
    room: dict[FleetShape, int] = field(default_factory=dict)  # for shapes that are on offer
    method: str = ""

    @property
    def short(self) -> float:
        """Returns the rate that its instances do not carry."""
        rate = self.service.rate_per_second
        rest = rate - sum(self.most)
        return rest if rest > EXACTLY * rate else 0.0

    @property
    def wanted(self) -> int:
        """Returns how many instances it lacks for minInstances."""
        return max(0, self.service.min_instances - len(self.seats))


def choose_starts(problem: Problem, counts: InstanceCounts, rooms: FleetRooms) -> list[FleetShape]:
    """Returns the shapes of the instances that the load needs at once: the integer program's choice (H1)."""
    offers = _offers(counts, rooms)
    chosen = _choose(offers, _cheapest(_program(problem, counts, offers), counts)) if counts.short else []
    if offers and (lack := counts.wanted - len(chosen)) > 0:
        cheapest = min(offers.values(), key=lambda shape: (shape.price_per_hour, shape.pool.gpu_type))
        chosen += [cheapest] * lack
    return chosen


def decide_counts(
    problem: Problem, counts: InstanceCounts, rooms: FleetRooms, watch: ScalingWatch, now: float
) -> tuple[list[FleetShape], list[Instance], ScalingWatch]:
    """Returns the shapes to start and the instances to stop now, and what to remember (H2).

    A service without any instance, or with fewer than minInstances, does not wait.
    """
    if not counts.seats or counts.wanted:
        return choose_starts(problem, counts, rooms), [], ScalingWatch()
    offers = _offers(counts, rooms)
    running = _scaling(problem, counts, counts.service.rate_per_second, tuple(_running_types(problem, counts)))

    def start(scaling: ScalingProblem, numbers: dict[str, int], saturation: float) -> Actions:
        return _cheapest(_program(problem, counts, offers), counts)

    actions, watch = decide(running, watch, now, RULES, start)
    stops = [counts.seats[int(name)] for name, number in actions.items() if number < 0]
    if len(counts.seats) - len(stops) < counts.service.min_instances:
        return [], [], ScalingWatch()
    return _choose(offers, actions) if not stops else [], stops, watch


def choose_type(problem: Problem, counts: InstanceCounts, rooms: FleetRooms) -> tuple[FleetShape, int] | None:
    """Returns the shape that the heuristic starts, and how many of it; None where no shape has a place."""
    offers = _offers(counts, rooms)
    choice = out(_program(problem, counts, offers), dict.fromkeys(offers, 0), RULES.saturation)
    return (offers[choice[0]], choice[1]) if choice else None


def _choose(offers: Mapping[str, FleetShape], actions: Actions) -> list[FleetShape]:
    return [offers[name] for name, number in sorted(actions.items()) for _ in range(number)]


def _offers(counts: InstanceCounts, rooms: FleetRooms) -> dict[str, FleetShape]:
    """Returns the shape that the service would start on each pool, by name.

    Of the shapes with room for all that is short it is the one whose number costs least, else the one that carries
    most together.
    """
    found = {}
    for number, (pool, shapes) in enumerate(counts.shapes.items()):
        choices, short, wanted = [], counts.short, counts.wanted
        for shape, room in zip(shapes, rooms.rooms_for(shapes, counts.service), strict=True):
            if not room or (counts.full and shape in counts.full):
                continue
            needed = max(1, wanted, ceil(short / shape.rate_per_second * (1 - EXACTLY)))
            missing = max(0.0, short - room * shape.rate_per_second) if room < needed else 0.0
            choices.append((missing, min(needed, room) * shape.share, shape.sm_percent, room, shape))
        if choices:
            *_, room, shape = min(choices, key=lambda choice: choice[:3])
            counts.room[shape] = room
            found[f"{number:03d} {pool.gpu_type}"] = shape
    return found


def _program(problem: Problem, counts: InstanceCounts, offers: Mapping[str, FleetShape]) -> ScalingProblem:
    """Returns HetSev's integer program (1) to (4) for the rate that no instance carries."""
    types = tuple(
        InstanceType(
            name=name,
            throughput_per_second=shape.rate_per_second,
            exec_ms=shape.exec_ms,
            gpu_memory_gib=shape.memory_gib,
            price_per_gib=shape.price_per_hour / shape.memory_gib,
            launch_seconds=shape.start_seconds,
            most=counts.room[shape],
        )
        for name, shape in offers.items()
    )
    return _scaling(problem, counts, counts.short, types)


def _running_types(problem: Problem, counts: InstanceCounts) -> Iterator[InstanceType]:
    """Yields each running instance as a type of its own: their neighbours differ, and so do their rates."""
    for number, (seat, most) in enumerate(zip(counts.seats, counts.most, strict=True)):
        whole_gib = problem.type_of(seat.node).memory_gib
        share = 1.0 if counts.service.is_dedicated else max(seat.sm_percent / 100, seat.memory_gib / whole_gib)
        yield InstanceType(
            name=str(number),
            throughput_per_second=most or counts.service.rate_per_second,
            exec_ms=0.0 if most else inf,  # one that cannot keep its SLO carries nothing
            gpu_memory_gib=share * whole_gib,
            price_per_gib=problem.nodes[seat.node].price_per_hour / whole_gib,
            running=1,
        )


def _scaling(
    problem: Problem, counts: InstanceCounts, arrivals: float, types: tuple[InstanceType, ...]
) -> ScalingProblem:  # fmt: skip
    """Lambda is such that an instance is paid for while it starts, as a share of the policy's horizon."""
    service, policy = counts.service, problem.policy
    return ScalingProblem(
        arrivals,
        ScalingPromise(service.slo_ms, service.percentile),
        types,
        unpredictability=1 / (policy.horizon_minutes * 60),
        unserved_price=policy.price_unserved(service),
    )


def _cheapest(scaling: ScalingProblem, counts: InstanceCounts) -> Actions:
    """Solves the program; the heuristic's answer is taken where no solver finds one."""
    if not scaling.types:
        return {}
    for solver in SOLVERS:
        found = scale(scaling, ScalingBudget(NODES, solver))
        if found.proof.bound is not None:
            break
    counts.method = found.proof.method
    return {name: number for name, number in found.actions.items() if number > 0}
