"""The GPUs of a fleet while Morak's plan is made: what each runs, at which clock, and what it carries of each rate."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from solvers.morak.fleet.items import MorakItem, MorakItems
from solvers.morak.power.options import IDLE, PowerOption, enumerate_options, narrow_options
from solvers.planning.carried import accepted_rates
from solvers.planning.fleet.offers import FleetShape, GpuPool
from solvers.planning.fleet.rooms import FleetRooms
from solvers.planning.judge.plan_lines import gpus_with
from solvers.planning.judge.readings import slow_down, watts
from solvers.planning.problem import Instance, Place, PlacedJob, Problem

UNKNOWN = 101  # SM% of a service without a shape: no GPU has so many
MOST_RESIDENTS = 8  # that a search puts on a GPU


@dataclass(slots=True)
class MorakGpu:
    """A GPU with its instances and jobs."""

    place: Place
    items: MorakItems
    jobs: tuple[PlacedJob, ...]
    was_used: bool = False
    seats: list[Instance] = field(default_factory=list)
    refused: set[str] = field(default_factory=set)  # services that have no room on it besides SMs, memory and watts

    @property
    def fixed(self) -> tuple[MorakItem, ...]:
        return tuple(MorakItem(seat.service, seat.variant, seat.sm_percent) for seat in self.seats)


class MorakBoard:
    """All GPUs, and the answers of the exact search that were computed for GPUs alike."""

    def __init__(self, problem: Problem, kept: Iterable[Instance], jobs: Sequence[PlacedJob], sets: int) -> None:
        self.problem, self.sets, self._jobs = problem, sets, jobs
        kept = tuple(kept)
        self.rooms = FleetRooms(problem, kept, jobs, counts_watts=False)  # what clocks decide is left to the search
        pools = {pool: MorakItems(problem, pool) for pool in self.rooms.pools}
        self.gpus: dict[Place, MorakGpu] = {}
        for place in self.rooms.places:
            own = tuple(job for job in jobs if job.place == place)
            items = pools[self.rooms.pool_of(place)]
            self.gpus[place] = MorakGpu(place, items, own, bool(own))
        for seat in kept:
            self.gpus[seat.place].seats.append(seat)
            self.gpus[seat.place].was_used = True
        self._only_best = problem.policy.power_budget_w is None  # else the knapsack chooses among all by their watts
        self._found: dict[object, list[PowerOption]] = {}
        self._too_many: dict[GpuPool, int] = {}  # new items, with which a search did not end

    @property
    def seats(self) -> list[Instance]:
        return [seat for gpu in self.gpus.values() for seat in gpu.seats]

    def keep(self, names: Collection[str]) -> None:
        """Drops all instances but these."""
        for gpu in self.gpus.values():
            gpu.seats = [seat for seat in gpu.seats if seat.id in names]
        self.count_rooms()

    def count_rooms(self) -> None:
        """Counts what is free again, once instances have other batches or are gone."""
        names = self.rooms.names
        self.rooms = FleetRooms(self.problem, self.seats, self._jobs, counts_watts=False)
        self.rooms.names = names

    def carried(self, gpu: MorakGpu, seats: Sequence[Instance]) -> dict[str, float]:
        """Returns what these instances carry there, by service."""
        found: dict[str, float] = {}
        for seat, rate in zip(seats, accepted_rates(self.problem, seats, gpu.jobs), strict=True):
            found[seat.service] = found.get(seat.service, 0.0) + rate
        return found

    def drawn_w(self, gpu: MorakGpu, seats: Sequence[Instance]) -> float:
        """Returns the watts above idle with these instances and all jobs busy, at the clock of the instances."""
        found = gpus_with(self.problem, seats, gpu.jobs).values()
        drawn = 0.0
        for held in found:
            slow_down(held, self.problem.policy)  # a job has the clock of its neighbours
            drawn += sum(watts(line, held) for line in held.residents) + sum(watts(job, held) for job in held.jobs)
        return drawn

    def options(self, gpu: MorakGpu, wanted: Mapping[str, float], *, grows: bool) -> list[PowerOption]:
        """Returns the options of a GPU by rising watts and worth, all with what runs there besides the first one.

        The first leaves the jobs alone there. A GPU that `grows` may take instances of each service with a wanted rate
        on its free SMs.
        """
        fixed, jobs, more = gpu.fixed, gpu.jobs, tuple[str, ...]()
        if grows:
            least, free = gpu.items.least_percents, self.rooms.spare_percent(gpu.place)
            able = (name for name, rate in wanted.items() if rate > 0 and name not in gpu.refused)
            more = tuple(sorted(name for name in able if least.get(name, UNKNOWN) <= free))
        names = sorted({item.name for item in fixed} | set(more))
        rates = tuple((name, wanted.get(name, 0.0)) for name in names)
        key = (gpu.items.pool, fixed, tuple((job.job, job.sm_percent) for job in jobs), rates, grows)
        if key not in self._found:
            found = self._search(gpu, dict(rates), more)
            self._found[key] = self._add_draw_of_jobs(gpu, found) if jobs else found
        return self._found[key]

    def _add_draw_of_jobs(self, gpu: MorakGpu, options: list[PowerOption]) -> list[PowerOption]:
        """Counts what jobs draw without instances, at the highest clock: instances at a lower one may draw less."""
        alone = PowerOption(self.drawn_w(gpu, ()), 0.0)
        others = options[1:]
        return others if others and others[0].watts <= alone.watts else [alone, *others]

    def _search(self, gpu: MorakGpu, wanted: Mapping[str, float], more: Sequence[str]) -> list[PowerOption]:
        """Enumerates every split with all measured shares; with those at the knees alone where that is too much."""
        items, fixed, jobs = gpu.items, gpu.fixed, gpu.jobs
        held = len(fixed) + len(jobs)
        most = held + (min(MOST_RESIDENTS, self.problem.policy.clients_per_gpu - held) if more else 0)
        cap_w, free = items.type.max_w, self.rooms.spare_percent(gpu.place)
        for offered in (items.shares, items.knees):
            new = [item for name in more for item in offered.get(name, ()) if item.sm_percent <= free]
            new = items.sort_by_worth(new, wanted)
            if not new and not held:
                return [IDLE]
            if len(new) >= self._too_many.get(items.pool, len(new) + 1):
                continue
            table = items.tables((*fixed, *new), wanted, jobs)
            must = (*range(len(fixed)), *range(len(fixed) + len(new), len(table.share)))
            found = enumerate_options(table, cap_w, most, self.sets, must, only_best=self._only_best)
            if found:
                return found[0]
            self._too_many[items.pool] = len(new)
        if held:  # too much beside what runs: that alone
            table = items.tables(fixed, wanted, jobs)
            found = enumerate_options(table, cap_w, held, self.sets, tuple(range(held)), only_best=self._only_best)
            return found[0] if found else [IDLE]
        table = items.tables(new, wanted)
        return narrow_options(table, cap_w, most, self.sets, only_best=self._only_best)[0]

    def seated(
        self, gpu: MorakGpu, option: PowerOption, reused: Mapping[tuple[Place, str, str], Sequence[str]]
    ) -> list[Instance]:
        """Returns the instances of an option: those that run with their new batch and clock, then the new ones.

        Those on GPUs that are divided again have `reused` names, by place, service and variant.
        """
        left, taken = list(gpu.seats), {seat.id for seat in gpu.seats}
        found = []
        for resident in option.residents:
            if resident.model.endswith(" "):
                continue  # a job
            service, _, variant = resident.model.rpartition(" ")
            same = [s for s in left if (s.service, s.variant, s.sm_percent) == (service, variant, resident.sm_percent)]
            memory = gpu.items.profiles[service, variant].memory_gib[resident.batch]
            if same:
                left.remove(same[0])
                seat = same[0]
            else:
                free = [name for name in reused.get((gpu.place, service, variant), ()) if name not in taken]
                name = free[0] if free else self.rooms.names.numbered(service)
                taken.add(name)
                seat = Instance(
                    name, service, *gpu.place, variant, 1, 0.0, resident.sm_percent, memory, option.clock_mhz, 0.0
                )
            found.append(replace(seat, batch=resident.batch, memory_gib=memory, clock_mhz=option.clock_mhz))
        return found

    def admits(self, gpu: MorakGpu, seat: Instance) -> bool:
        """Returns whether nodes, tenants and other instances leave room for a new instance there."""
        return self.rooms.can_hold(gpu.place, self._shape(gpu, seat), self.problem.services[seat.service])

    def take(self, gpu: MorakGpu, seat: Instance) -> None:
        self.rooms.put_on(gpu.place, self._shape(gpu, seat), self.problem.services[seat.service])

    def _shape(self, gpu: MorakGpu, seat: Instance) -> FleetShape:
        profile = gpu.items.profiles[seat.service, seat.variant]
        return FleetShape.of(gpu.items.pool, profile, seat.batch, seat.sm_percent, 0.0, 0.0, 1.0)
