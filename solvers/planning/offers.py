"""Which shapes a service may have on each pool of GPUs, and what an instance of each carries; found once for a problem.

What a shape carries is a function of the pressure beside it, so an offer states for which pressure its rate holds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar
from weakref import ref

import numpy as np

from solvers.latency import limits, used_loads
from solvers.planning.judge.tolerances import at_most
from solvers.planning.machines import capped
from solvers.planning.problem import Curve, GpuType, Node, Place, Policy, Problem, Profile, Service
from solvers.planning.search.promise import accepted_loads
from solvers.planning.search.tables import Floats, Ints, everywhere, inside

SHARED_PRESSURE = 0.7  # of all on a shared GPU: times grow by 18 % at a sensitivity of .25 (HetSev, section 3.2)
STEP_SM_PERCENT = 10
KNEE_SHARE = 0.15  # longer than with all SMs: at the knee
NO_SHAPE = "no GPU type of the fleet keeps its SLO in any profiled shape"
NO_GPU = "no GPU may be used now: no node reports one, or all are cordoned, drained or failed"


Known = TypeVar("Known")
Found = TypeVar("Found")


@dataclass(frozen=True, slots=True)
class GpuPool:
    """All GPUs of one type and cap of watts at one price, of nodes that offer the same templates."""

    gpu_type: str
    price_per_hour: float
    templates: frozenset[str] | None
    max_w: float  # that one of its GPUs may draw

    @classmethod
    def of(cls, problem: Problem, place: Place) -> GpuPool:
        node = problem.nodes[place[0]]
        return cls(node.gpu_type, node.price_per_hour, node.templates, problem.type_at(place).max_w)

    def type_in(self, problem: Problem) -> GpuType:
        """Returns the type of its GPUs, with their cap as maxW."""
        return capped(problem.gpu_types[self.gpu_type], self.max_w)


@dataclass(frozen=True, slots=True)
class FleetShape:
    """The shape of an instance in a pool, and the most that it should carry beside neighbours."""

    pool: GpuPool
    variant: str
    batch: int
    sm_percent: int
    memory_gib: float
    pressure: float
    top_w: float
    cpu_cores: float
    host_memory_gib: float
    exec_ms: float
    start_seconds: float
    rate_per_second: float
    share: float  # of the GPU, that is paid for

    @classmethod
    def of(
        cls, pool: GpuPool, profile: Profile, batch: int, sm_percent: int, exec_ms: float, rate_per_second: float,
        share: float,
    ) -> FleetShape:  # fmt: skip
        """Returns this batch and SM% of a profile, with the time and the rate that it has beside its neighbours."""
        demand, grid = profile.demand, read_grid(profile)
        return cls(
            pool, profile.variant, batch, sm_percent, profile.memory_gib[batch], float(grid.pressure[sm_percent]),
            float(grid.power_w[sm_percent]), demand.cpu_cores, demand.host_memory_gib, exec_ms,
            profile.start_seconds, rate_per_second, share,
        )  # fmt: skip

    @property
    def price_per_hour(self) -> float:
        return self.pool.price_per_hour * self.share


@dataclass(frozen=True, slots=True)
class ProfileGrid:
    """A profile by batch and SM%, as loops read it."""

    batches: Ints
    exec_ms: Floats  # [batch, SM%], alone at the highest clock; infinite where not profiled
    memory_gib: Floats  # [batch]
    pressure: Floats  # [SM%]
    power_w: Floats  # [SM%]
    row_of: Mapping[int, int]  # batch -> its row

    @classmethod
    def of(cls, profile: Profile) -> ProfileGrid:
        batches = sorted(profile.latency_ms)
        return cls(
            np.array(batches, dtype=np.int64),
            np.ascontiguousarray([inside(profile.latency_ms[batch]) for batch in batches]),
            np.array([profile.memory_gib[batch] for batch in batches], dtype=np.float64),
            everywhere([profile.demand.pressure])[0].copy(),
            everywhere([profile.demand.power_w])[0].copy(),
            {batch: row for row, batch in enumerate(batches)},
        )


ListShapes: TypeAlias = Callable[[Service, GpuPool], Iterable[FleetShape]]


class Offers:
    """The shapes of the services of a problem. They depend on no rate."""

    def __init__(self, problem: Problem) -> None:
        self._policy, self._gpu_types, self._profiles = problem.policy, problem.gpu_types, problem.profiles
        self.templates = {(model, v.name): v.template for model, known in problem.models.items() for v in known}
        self._known: dict[tuple[object, ...], tuple[FleetShape, ...]] = {}

    def find_profiles(self, service: Service, pool: GpuPool | Node) -> list[Profile]:
        """Returns the profile of each variant that type and templates admit there, in the variants' order."""
        if service.gpu_types is not None and pool.gpu_type not in service.gpu_types:
            return []
        if service.cells is not None and isinstance(pool, Node) and pool.cell not in service.cells:
            return []
        found = []
        for variant in service.variants:
            template = self.templates.get((service.model, variant))
            profile = self._profiles.get((service.model, variant, pool.gpu_type))
            if profile and (template is None or pool.templates is None or template in pool.templates):
                found.append(profile)
        return found

    def find_knee_shapes(self, service: Service, pools: Iterable[GpuPool]) -> list[FleetShape]:
        """Returns every batch at every tenth of the SMs up to its knee that carries anything within the SLO."""
        return self._find(service, pools, self._list_up_to_knee)

    def find_best_shapes(self, service: Service, pools: Iterable[GpuPool]) -> list[FleetShape]:
        """Returns, of each variant at each tenth of the SMs, the batch that carries most for its price; best first."""
        return self._find(service, pools, self._list_best)

    def find_whole_shapes(self, service: Service, pools: Iterable[GpuPool]) -> list[FleetShape]:
        """Returns for each pool the variant and batch that carry most with a whole GPU, where any does."""
        return self._find(service, pools, self._list_whole)

    def _find(self, service: Service, pools: Iterable[GpuPool], list_shapes: ListShapes) -> list[FleetShape]:
        terms = (
            service.model, service.variants, service.slo_ms, service.percentile, service.variation, service.gpu_types,
            service.is_dedicated, list_shapes.__name__,
        )  # fmt: skip
        found: list[FleetShape] = []
        for pool in pools:
            if (shapes := self._known.get((*terms, pool))) is None:
                shapes = self._known[*terms, pool] = tuple(list_shapes(service, pool))
            found += shapes
        return found

    def _list_up_to_knee(self, service: Service, pool: GpuPool) -> Iterator[FleetShape]:
        for profile in self.find_profiles(service, pool):
            for batch, curve in self._list_fitting(profile):
                yield from self._list_shared(service, pool, profile, batch, _list_tenths(curve, _find_knee(curve)))

    def _list_best(self, service: Service, pool: GpuPool) -> list[FleetShape]:
        found: list[FleetShape] = []
        for profile in self.find_profiles(service, pool):
            best: dict[int, FleetShape] = {}
            for batch, curve in self._list_fitting(profile):
                steps = _list_tenths(curve, curve[-1][0])
                for shape in self._list_shared(service, pool, profile, batch, steps):
                    known = best.get(shape.sm_percent)
                    if known is None or shape.rate_per_second / shape.share > known.rate_per_second / known.share:
                        best[shape.sm_percent] = shape
            found += best.values()
        return sorted(found, key=lambda shape: (shape.share / shape.rate_per_second, shape.sm_percent))

    def _list_whole(self, service: Service, pool: GpuPool) -> Iterator[FleetShape]:
        kind = capped(self._gpu_types[pool.gpu_type], pool.max_w)
        shapes = []
        for profile in self.find_profiles(service, pool):
            for batch, curve in profile.latency_ms.items():
                sm_percent, exec_ms = curve[-1]
                rates = self._find_rates(service, batch, np.array([exec_ms]))
                shapes.append(FleetShape.of(pool, profile, batch, sm_percent, exec_ms, float(rates[0]), 1.0))
        fitting = [
            shape
            for shape in shapes
            if at_most(kind.idle_w + shape.top_w, kind.max_w) and at_most(shape.memory_gib, kind.memory_gib)
        ]
        best = max(fitting or shapes, key=lambda shape: shape.rate_per_second, default=None)
        if best is not None and best.rate_per_second > 0:
            yield best

    def _list_fitting(self, profile: Profile) -> Iterator[tuple[int, Curve]]:
        """Yields the batches that the type's memory holds, the smallest first, with their times."""
        memory_gib = self._gpu_types[profile.gpu_type].memory_gib
        for batch, curve in sorted(profile.latency_ms.items()):
            if profile.memory_gib[batch] <= memory_gib:
                yield batch, curve

    def _list_shared(
        self, service: Service, pool: GpuPool, profile: Profile, batch: int, steps: list[int]
    ) -> Iterator[FleetShape]:
        """Yields what carries anything beside neighbours that make the pressure up to that of a shared GPU."""
        policy, grid, percents = self._policy, read_grid(profile), np.array(steps)
        beside = np.maximum(0.0, SHARED_PRESSURE - grid.pressure[percents])  # alone where it exceeds that by itself
        if service.is_dedicated:
            beside = np.zeros(len(steps))
        if policy.pricing == "share":
            beside = np.maximum(beside, policy.share_pressure * (1 - percents / 100))
        exec_ms = grid.exec_ms[grid.row_of[batch], percents] * (1 + profile.demand.sensitivity * beside)
        rates = self._find_rates(service, batch, exec_ms)
        memory_share = profile.memory_gib[batch] / self._gpu_types[pool.gpu_type].memory_gib
        for sm_percent, time, rate in zip(steps, exec_ms.tolist(), rates.tolist(), strict=True):
            if rate > 0:
                share = 1.0 if service.is_dedicated else max(sm_percent / 100, memory_share)
                yield FleetShape.of(pool, profile, batch, sm_percent, time, rate, share)

    def _find_rates(self, service: Service, batch: int, exec_ms: Floats) -> Floats:
        """Returns the most that a batch carries at each of these times, neighbours included; 0 beyond the SLO."""
        margin = 1 + self._policy.exec_margin
        rows = limits(service.percentile, [batch], service.variation).loads
        loads = np.zeros(len(exec_ms))
        accepted_loads(rows, np.full(len(exec_ms), batch), service.slo_ms / (exec_ms * margin), loads)
        rates: Floats = np.minimum(loads / margin, self._policy.utilization) * batch * 1000 / exec_ms
        return rates


class _Kept(Generic[Known, Found]):
    """What was found for objects that cannot be hashed, each once while it lives."""

    def __init__(self, find: Callable[[Known], Found]) -> None:
        self._find, self._found = find, dict[int, tuple[ref[Known], Found]]()

    def __call__(self, about: Known) -> Found:
        kept = self._found.get(key := id(about))
        if kept is None or kept[0]() is not about:
            kept = self._found[key] = ref(about, lambda _: self._found.pop(key, None)), self._find(about)
        return kept[1]


read_offers = _Kept(Offers)
read_grid = _Kept(ProfileGrid.of)


def read_loads(service: Service, policy: Policy, batches: Ints) -> Floats:
    """Returns the loads that each of these batches accepts under the service's percentile, by SLO / exec."""
    rows, used = limits(service.percentile, batches.tolist(), service.variation).loads, service.used_load
    return np.ascontiguousarray(used_loads(rows[batches], used.share, used.most * (1 + policy.exec_margin)))


def why_no_shape(problem: Problem) -> str:
    """Returns why a service has no shape on any GPU of the fleet."""
    return NO_SHAPE if any(node.gpus for node in problem.nodes.values()) else NO_GPU


def _find_knee(curve: Curve) -> int:
    """Returns the smallest SM% of the curve with which a batch takes little longer than with all."""
    return next(sm for sm, ms in curve if ms <= curve[-1][1] * (1 + KNEE_SHARE))


def _list_tenths(curve: Curve, last: int) -> list[int]:
    """Returns the first SM% of the curve, every tenth of the SMs up to the last SM%, and that one."""
    first = curve[0][0]
    return sorted({first, last, *(sm for sm in range(STEP_SM_PERCENT, last, STEP_SM_PERCENT) if sm > first)})
