"""A fleet whose GPUs are filled by SM%, one instance after the other, and what each shape carries there alone."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TypeAlias

from solvers.planning.carried import admitted, carry
from solvers.planning.fleet.grids import accepted_rate
from solvers.planning.fleet.offers import FleetShape, read_offers
from solvers.planning.fleet.rooms import FleetRooms
from solvers.planning.judge.readings import value_at
from solvers.planning.plan import Unserved
from solvers.planning.planner_draft import PlannerDraft
from solvers.planning.problem import Instance, Knowledge, Place, PlacedJob, Problem, Profile, Service

MOVED_SHARE = 0.1  # of a rate, since the last placement
LEAST_SHARE = 1e-6  # of a rate that is worth an instance
NO_PLACE = "no GPU has SMs, memory and watts left for another instance"
FillFleet: TypeAlias = Callable[["SharingFleet"], None]


@dataclass(frozen=True, slots=True)
class SharedShape:
    """A batch and SM% of a service on a kind of GPU, its time alone, and the rate that this carries."""

    profile: Profile
    batch: int
    sm_percent: int
    exec_ms: float
    per_second: float


class SharingFleet:
    """The GPUs while instances are placed."""

    def __init__(self, problem: Problem, running: Sequence[Instance], jobs: Sequence[PlacedJob]) -> None:
        self.problem = problem
        self._known: dict[tuple[str, Place], list[str]] = defaultdict(list)
        for line in running:
            self._known[line.service, line.place].append(line.id)
        self.rooms = FleetRooms(problem, (), jobs)
        self.seats: list[Instance] = []
        self.shape_of = cache(self._shape)

    @property
    def places(self) -> list[Place]:
        return self.rooms.places

    def free_percent(self, place: Place) -> int:
        return int(self.rooms.free_sm[self.places.index(place)])

    def profile_at(self, name: str, place: Place) -> Profile | None:
        """Returns the profile of the first variant of a service that this GPU may run."""
        service = self.problem.services[name]
        return next(iter(read_offers(self.problem).find_profiles(service, self.rooms.pool_of(place))), None)

    def batches(self, name: str, place: Place) -> list[int]:
        profile = self.profile_at(name, place)
        return sorted(profile.latency_ms) if profile else []

    def _shape(self, name: str, place: Place, batch: int, sm_percent: int, slower: float = 1.0) -> SharedShape | None:
        """Returns a shape, `slower` by its neighbours; None where its SM% or its batch were not profiled."""
        profile, policy, service = self.profile_at(name, place), self.problem.policy, self.problem.services[name]
        if profile is None or sm_percent < profile.latency_ms[batch][0][0]:
            return None
        exec_ms = value_at(profile.latency_ms[batch], sm_percent) * slower
        return SharedShape(profile, batch, sm_percent, exec_ms, accepted_rate(policy, service, batch, exec_ms))

    def can_put(self, place: Place, name: str, shape: SharedShape) -> bool:
        return self.rooms.can_hold(place, self._make_fleet_shape(shape, name, place), self.problem.services[name])

    def put(self, place: Place, name: str, shape: SharedShape) -> None:
        self.rooms.put_on(place, self._make_fleet_shape(shape, name, place), self.problem.services[name])
        self.seats.append(
            Instance(
                self._name(name, place), name, *place, shape.profile.variant, shape.batch, 0.0,
                shape.sm_percent, shape.profile.memory_gib[shape.batch],
                self.problem.type_of(place[0]).top_clock_mhz, 0.0,
            )
        )  # fmt: skip

    def _name(self, service: str, place: Place) -> str:
        """Returns the name of an instance that runs there, or a new one."""
        own = self._known[service, place]
        return own.pop() if own else self.rooms.names.at(service, place)

    def parts(self, service: Service) -> list[float]:
        """Returns the rates of the instances of a service, none above what a whole GPU of the best type carries."""
        alone = read_offers(self.problem).find_whole_shapes(service, self.rooms.pools)
        most = max((shape.rate_per_second for shape in alone), default=0.0)
        if most <= 0:
            return []
        count = max(service.min_instances, min(len(self.places), -int(-service.rate_per_second // most)))
        return [service.rate_per_second / count] * count

    def _make_fleet_shape(self, shape: SharedShape, name: str, place: Place) -> FleetShape:
        share = 1.0 if self.problem.services[name].is_dedicated else shape.sm_percent / 100
        pool, batch, sm_percent = self.rooms.pool_of(place), shape.batch, shape.sm_percent
        return FleetShape.of(pool, shape.profile, batch, sm_percent, shape.exec_ms, shape.per_second, share)


def shared(problem: Problem, knowledge: Knowledge, fill: FillFleet, method: str) -> PlannerDraft:
    """Returns the plan that runs while it is good enough, else the one that `fill` makes of an empty fleet."""
    state = problem.state
    jobs = state.jobs if state else ()
    running = admitted(problem, state.running, state.jobs) if state else []
    placed_for, rates = knowledge.get("rates", {}), {n: s.rate_per_second for n, s in problem.services.items()}
    instances, rests = carry(problem, running, jobs)
    is_near = all(abs(placed_for.get(name, 0.0) / rate - 1) <= MOVED_SHARE for name, rate in rates.items())
    if rests and not is_near:
        fleet = SharingFleet(problem, running, jobs)
        fill(fleet)
        instances, rests = carry(problem, fleet.seats, jobs)
        placed_for = rates
    unserved = tuple(Unserved(name, rate, NO_PLACE) for name, rate in sorted(rests.items()))
    return PlannerDraft(tuple(instances), unserved, method, {"rates": placed_for})


def leftovers(fleet: SharingFleet, name: str, step: int) -> Iterator[tuple[Place, SharedShape]]:
    """Yields the GPUs with most free SMs first, each with the shape that carries most in what is left there."""
    for place in sorted(fleet.places, key=lambda place: (-fleet.free_percent(place), place)):
        free = fleet.free_percent(place) // step * step
        found = [
            shape
            for batch in fleet.batches(name, place)
            if free and (shape := fleet.shape_of(name, place, batch, free)) and fleet.can_put(place, name, shape)
        ]
        if found:
            yield place, max(found, key=lambda shape: shape.per_second)
