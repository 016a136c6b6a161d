"""Carries higher rates by what runs, and by new instances beside it where the room that is left allows them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import replace
from math import ceil

import numpy as np

from solvers.hetsev.fleet.counts import InstanceCounts, choose_type
from solvers.hetsev.fleet.lines import FleetLines
from solvers.planning.fleet.grids import ROUNDING, Floats
from solvers.planning.fleet.offers import SHARED_PRESSURE, FleetShape, GpuPool, SpareRoom, read_offers
from solvers.planning.fleet.trial_rooms import TrialRooms
from solvers.planning.judge import PlanEdit, Resident, Violation
from solvers.planning.plan import NONE_UNSERVED_SHARE, Unserved
from solvers.planning.pressures import add_parts
from solvers.planning.problem import Instance, Problem, Service
from solvers.planning.replan.rates import share_total, sum_of

NO_ROOM = "no GPU has room for more of it while nothing moves"
WHAT_HELPS = "a GPU more, or the joint solver's next plan"
LOOKS = 16  # at GPUs that are paid already, and as many others, for each instance
LEAST_SHARE = 1e-3  # of an even share is left on an instance that keeps its SLO at no rate: nothing stops here
LEAST_PART = 0.1  # of what an instance should carry: one that carries less is not worth its process
CLOSE_SHARE = 1 - 1e-3  # of what it may carry: one that carries more bears next to nothing
TINY_RATE = 1e-12  # a second
ENOUGH_SHARE = ROUNDING**2  # of a rate that has been rounded
Shapes = dict[GpuPool, list[FleetShape]]


class FleetAdding:
    """A pass over the services that need more, which can be asked for again and again."""

    def __init__(self, problem: Problem, rooms: TrialRooms) -> None:
        self.rooms, self._offers, self._lines = rooms, read_offers(problem), FleetLines(problem, rooms)
        self._shapes: dict[str, Shapes] = {}
        self._pools_of: dict[tuple[str, str, str], list[GpuPool]] = defaultdict(list)  # service, GPU type, variant
        self.begin(problem)

    def begin(self, problem: Problem) -> None:
        """Takes the last pass back, and begins another one at these rates."""
        self._lines.begin(problem)
        self.problem, self.looked_at = problem, 0
        self.unserved: dict[str, Unserved] = {}
        self.now: dict[int, Instance] = {}  # by `id()` of an instance that runs: the same as it is now
        self.new: list[Instance] = []

    def read_shapes(self, service: Service) -> Shapes:
        """Returns the shapes of a service in each pool: they depend on no rate."""
        if service.name not in self._shapes:
            found = {pool: self._offers.find_alone_shapes(service, [pool]) for pool in self.rooms.pools}
            self._shapes[service.name] = {pool: shapes for pool, shapes in found.items() if shapes}
            for pool, shapes in self._shapes[service.name].items():
                for variant in {shape.variant for shape in shapes}:
                    self._pools_of[service.name, pool.gpu_type, variant].append(pool)
        return self._shapes[service.name]

    def serve(self, name: str, *, may_start: bool, may_share: bool = True) -> None:
        """Carries the rate of a service: by what runs as far as that goes, then by new instances.

        Of a language model none starts: it may need GPUs that are linked, and on which nothing runs. Without
        `may_share`, what runs keeps its parts of the rate.
        """
        service, lines = self.problem.services[name], self._lines.running(name)
        if may_share:
            lines = self._serve_more(service, lines, may_start=may_start and service.tokens is None)
        else:
            self._set_rates(lines, self._keep_parts(lines, service))
        rest = service.rate_per_second - sum(line.instance.rate_per_second for line in lines)
        if rest > NONE_UNSERVED_SHARE * service.rate_per_second:
            self.unserved[name] = Unserved(name, rest, NO_ROOM, WHAT_HELPS)

    def _serve_more(self, service: Service, lines: list[Resident], *, may_start: bool) -> list[Resident]:
        """Returns the lines that carry the rate of a service, new ones among them."""
        rate, caps = service.rate_per_second, [self._lines.cap(line) for line in lines]
        most: list[float] = np.maximum(caps, self._find_floor(lines, service)).tolist()
        if may_start and rate - sum(most) > NONE_UNSERVED_SHARE * rate:
            times = [line.exec_ms for line in lines]
            for line, each in zip(lines, most, strict=True):
                self._lines.fill(line, each)
            if added := self._start(service, lines, most):
                changed = [line.exec_ms != time for line, time in zip(lines, times, strict=True)]
                caps = [
                    self._lines.cap(line) if is_changed else cap
                    for line, cap, is_changed in zip(lines, caps, changed, strict=True)
                ]
                lines, caps = lines + added, caps + [self._lines.cap(line) for line in added]
            self._share(lines, caps, service)
            self._lines.settle(line for line, cap in zip(lines, caps, strict=True) if has_room(line, cap))
        else:
            self._share(lines, caps, service)
        return lines

    def edit(self) -> PlanEdit:
        """Returns what differs from what runs."""
        changed, self.new = self._lines.list_changed(), self._lines.list_added()
        self.now = {id(before): after for before, after in changed}
        start = [*(after for _, after in changed), *self.new]
        moved = {*self.unserved, *(line.service for line in start)}
        unserved = {name: self.unserved.get(name) for name in sorted(moved)}
        return PlanEdit(tuple(before for before, _ in changed), tuple(start), unserved=unserved)

    def find_at_fault(self, refused: Collection[Violation]) -> set[str]:
        """Returns the services whose additions the judge names, by their name or GPU, or else whose shares it names."""
        shared = {*self.unserved, *(line.service for line in self.now.values())}
        found: set[str] = set()
        for each in refused:
            added = {
                line.service
                for line in self.new
                if line.service == each.owner or f"{line.node}/{line.gpu}" in each.where or line.node == each.where
            }
            found |= added or shared & {each.owner}
        return found

    def _start(self, service: Service, running: Sequence[Resident], most: Sequence[float]) -> list[Resident]:
        """Starts instances for what is missing, as far as there is room."""
        counts = InstanceCounts(
            service, self.read_shapes(service), [line.instance for line in running], list(most)
        )  # fmt: skip
        added: list[Resident] = []
        wanted = service.min_instances - len(running)  # so many at least, where there is none

        least = NONE_UNSERVED_SHARE * service.rate_per_second

        def is_short() -> bool:
            return counts.short > least or 0 < len(added) < wanted

        def start(shape: FleetShape, number: int, *, whole: bool) -> bool:
            """Starts so many instances of this kind; returns whether all of them found a place."""
            least = None
            for left in range(number, 0, -1):
                part = counts.short
                if wanted > len(added):
                    part = max(part, service.rate_per_second / service.min_instances)
                part /= max(left, wanted - len(added))
                least = least or self._find_least(service, shape, part if whole else LEAST_PART * part)
                line = self._place(service, shape, least, part, whole=whole) if least else None
                if line is None:
                    return False
                added.append(line)
                counts.seats.append(line.instance)
                counts.most.append(line.instance.rate_per_second)
                if not is_short():
                    break
            return True

        while is_short() and (choice := choose_type(self.problem, counts, self.rooms)):
            shape, number = choice
            if not start(shape, number, whole=True):
                counts.full.update(
                    each for shapes in counts.shapes.values() for each in shapes if is_alike(each, shape)
                )
        for shape in _list_kinds(counts):  # where no room is left for whole parts, each carries what it can
            while is_short():
                number = min(self._count_room(counts, shape), ceil(counts.short / shape.rate_per_second))
                if not start(shape, max(1, number), whole=False):
                    break
        return added

    def _count_room(self, counts: InstanceCounts, kind: FleetShape) -> int:
        """Returns how many more instances of this kind fit in their smallest shapes."""
        return sum(
            max((room for shape, room in zip(shapes, rooms, strict=True) if is_alike(shape, kind)), default=0)
            for pool, shapes in counts.shapes.items()
            if pool.gpu_type == kind.pool.gpu_type and (rooms := self.rooms.rooms_for(shapes, counts.service))
        )

    def _place(
        self, service: Service, shape: FleetShape, least: FleetShape, part: float, *, whole: bool
    ) -> Resident | None:  # fmt: skip
        """Starts one instance on the first GPU that takes it; None if none does."""
        pools = self._pools_of[service.name, shape.pool.gpu_type, shape.variant]
        enough = part * (ENOUGH_SHARE if whole else LEAST_PART)
        for place in self.rooms.list_cheapest(least, service, pools, LOOKS):
            self.looked_at += 1
            pool, room = self.rooms.pool_of(place), self.rooms.spare_room(place, service)
            found = None
            if not self.rooms.gpu_at(place).residents:  # one that it opens has room for another one like itself
                own = add_parts(least.pressure)
                another = least.pressure + max(0.0, SHARED_PRESSURE - 2 * own)
                beside = room._replace(pressure=room.pressure + another)
                found = self._offers.find_smallest(service, pool, shape.variant, part, beside)
            if found is None or found.rate_per_second < enough:
                found = self._offers.find_smallest(service, pool, shape.variant, part, room)
            if found is None or found.rate_per_second < enough or not self.rooms.bears(place, found.pressure):
                continue
            if self.rooms.allows(found, service) and (line := self._lines.add(service, found, place)):
                return line
        return None

    def _find_least(self, service: Service, shape: FleetShape, part: float) -> FleetShape | None:
        """Returns the least that carries this part on an idle GPU, in the memory that any batch needs at least."""
        kind, pool = shape.pool.type_in(self.problem), shape.pool
        idle = SpareRoom.idle(kind)
        found = self._offers.find_smallest(service, pool, shape.variant, part, idle)
        if found is None or found.rate_per_second < part * ENOUGH_SHARE:
            return None
        profile = self.problem.profiles[service.model, shape.variant, pool.gpu_type]
        # Where shares are priced, the less of a GPU is left, the faster all are.
        sm_percent = 1 if self.problem.policy.pricing == "share" else found.sm_percent
        return replace(found, sm_percent=sm_percent, memory_gib=min(profile.memory_gib.values()), top_w=0.0)

    def _share(self, lines: Sequence[Resident], caps: Sequence[float], service: Service) -> None:
        """Shares the rate among all instances so that as few as possible get another one."""
        if not lines:
            return
        now, rate = self._read_rates(lines), service.rate_per_second
        least = service.min_instances if len(lines) >= service.min_instances else 1
        most = np.maximum(caps, self._find_floor(lines, service))
        rates = share_total(now, most, rate, least)
        # Of minInstances, one that carries next to nothing would take the rate of all others with it.
        kept = min(rate, sum_of(np.minimum(now, most)))
        if now.all() and sum_of(rates) < kept * (1 - NONE_UNSERVED_SHARE):
            rates = self._keep_parts(lines, service)
        self._set_rates(lines, rates)

    def _keep_parts(self, lines: Sequence[Resident], service: Service) -> Floats:
        """Returns the rates of what runs times one factor: no more than 1 where an instance carries no more."""
        now = self._read_rates(lines)
        carried = [self._lines.cap(line) / rate for line, rate in zip(lines, now.tolist(), strict=True)]
        return now * min(service.rate_per_second / max(sum_of(now), TINY_RATE), max(1.0, min(carried, default=1.0)))

    def _find_floor(self, lines: Sequence[Resident], service: Service) -> Floats:
        """Returns what stays on each line that runs, even if it carries nothing: little enough for the others."""
        return np.minimum(self._read_rates(lines), LEAST_SHARE * service.rate_per_second / max(1, len(lines)))

    def _read_rates(self, lines: Sequence[Resident]) -> Floats:
        """Returns the rates of lines as they run, 0 for new ones."""
        before = [self._lines.before(line) for line in lines]
        return np.array([each.rate_per_second if each else 0.0 for each in before])

    def _set_rates(self, lines: Sequence[Resident], rates: Floats) -> None:
        for line, rate in zip(lines, rates.tolist(), strict=True):
            self._lines.set_rate(line, rate)


def has_room(line: Resident, cap: float) -> bool:
    """Returns whether a line carries less than it may, and so bears some more pressure."""
    return line.instance.rate_per_second < cap * CLOSE_SHARE


def is_alike(shape: FleetShape, other: FleetShape) -> bool:
    """Returns whether two shapes are of one variant on one type of GPU."""
    return shape.variant == other.variant and shape.pool.gpu_type == other.pool.gpu_type


def _list_kinds(counts: InstanceCounts) -> list[FleetShape]:
    """Returns the cheapest shape for its rate of each variant on each type of GPU, the cheapest first."""
    shapes = [shape for known in counts.shapes.values() for shape in known]
    found: dict[tuple[str, str], FleetShape] = {}
    for shape in sorted(shapes, key=lambda each: each.price_per_hour / each.rate_per_second):
        found.setdefault((shape.pool.gpu_type, shape.variant), shape)
    return list(found.values())
