"""A fleet whose GPUs are given out whole or by slices; what runs in the same shape stays where it is."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from math import ceil

from solvers.planning.carried import admitted, carry
from solvers.planning.fleet.offers import FleetShape, read_offers
from solvers.planning.fleet.rooms import FleetRooms
from solvers.planning.plan import Unserved
from solvers.planning.planner_draft import PlannerDraft
from solvers.planning.problem import Instance, Place, PlacedJob, Problem, Service

ROUNDING_SHARE = 1e-6  # of a rate: less is served by the instances that are there
NOT_CARRIED = "its instances do not carry it"


class WholeFleet:
    """The GPUs while instances are placed. Jobs that must stay keep theirs; all others give way to services."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        state = problem.state
        running = admitted(problem, state.running, state.jobs) if state else []
        self._running: dict[str, list[Instance]] = defaultdict(list)
        for line in running:
            self._running[line.service].append(line)
        self._used = {line.place for line in running}
        self.staying: tuple[PlacedJob, ...] = tuple(
            job for job in (state.jobs if state else ()) if not problem.jobs[job.job].is_preemptible
        )
        self.rooms = FleetRooms(problem, (), self.staying)
        self.seats: list[Instance] = []

    def shapes(self, service: Service) -> list[FleetShape]:
        """Returns for each pool the shape of a whole GPU, of the variants that keep the service's accuracy."""
        return read_offers(self.problem).find_whole_shapes(self.narrow_variants(service), self.rooms.pools)

    def narrow_variants(self, service: Service) -> Service:
        """Returns the service with the variants that keep its accuracy alone."""
        known = {variant.name: variant.accuracy for variant in self.problem.models[service.model]}
        accurate = tuple(name for name in service.variants if known.get(name, 0.0) >= service.mean_accuracy)
        return replace(service, variants=accurate)

    def seat(self, service: Service, shape: FleetShape, count: int, *, shares: bool = False) -> int:
        """Places so many instances, first where they run now; returns how many found a GPU.

        Those that share a GPU take one with others before an idle one, and no GPU twice in one call.
        """
        placed = 0
        for place, running, fitting in self._places(service, shape, shares=shares):
            if placed == count:
                break
            if not self.rooms.can_hold(place, fitting, service):
                continue
            if running:
                self.rooms.put_on(place, fitting, service)
            self.seats.append(running or self._start(place, shape, service, shares=shares))
            placed += 1
        return placed

    def find_missing(self) -> dict[str, float]:
        """Returns by service the rate that the instances so far do not carry beside their neighbours."""
        return carry(self.problem, self.seats, self.staying)[1]

    def draft(self, method: str) -> PlannerDraft:
        """Returns the plan of the instances so far, each with all of its GPU."""
        instances, rests = carry(self.problem, self.seats, self.staying)
        return PlannerDraft(tuple(instances), self.unserved(rests), method)

    def unserved(self, rests: dict[str, float]) -> tuple[Unserved, ...]:
        return tuple(
            Unserved(name, rate, self.rooms.why_no_gpu(self.problem.services[name]) or NOT_CARRIED)
            for name, rate in sorted(rests.items())
        )

    def _start(self, place: Place, shape: FleetShape, service: Service, *, shares: bool) -> Instance:
        started = self.rooms.start_on(place, shape, service)
        return replace(started, id=self.rooms.names.numbered(service.name)) if shares else started

    def _places(
        self, service: Service, shape: FleetShape, *, shares: bool
    ) -> Iterator[tuple[Place, Instance | None, FleetShape]]:  # fmt: skip
        """Yields GPUs of the pool: with an instance of this shape that runs there, then unused ones, then all others.

        Beside a job that must stay, an instance keeps the SMs that it has.
        """
        kept = set[Place]()
        with_jobs = {job.place for job in self.staying}
        for line in self._running[service.name]:
            is_same = (line.variant, line.batch) == (shape.variant, shape.batch)
            if is_same and line.place not in kept and self.rooms.pool_of(line.place) == shape.pool:
                kept.add(line.place)
                here = replace(shape, sm_percent=line.sm_percent) if line.place in with_jobs else shape
                top = self.problem.type_of(line.node).top_clock_mhz
                seat = replace(line, sm_percent=here.sm_percent, memory_gib=here.memory_gib, clock_mhz=top)
                yield line.place, seat, here
        rooms = self.rooms
        able = rooms.places_for(shape, service) if shares else rooms.idle_places(shape, service)
        rest = [place for place in able if place not in kept]
        for place in sorted(rest, key=lambda place: (-rooms.used_percent(place), place in self._used)):
            yield place, None, shape


def count_needed(service: Service, shape: FleetShape, rate: float | None = None) -> int:
    """Returns how many instances of this shape carry the service's rate, or this part of it."""
    wanted = service.rate_per_second if rate is None else rate
    return max(1, ceil(wanted / shape.rate_per_second * (1 - ROUNDING_SHARE)))


def sort_by_priority(problem: Problem) -> list[Service]:
    """Returns the services of the highest priority first."""
    return sorted(problem.services.values(), key=lambda service: (-service.priority, service.name))
