"""Which shapes a service may have on each pool of GPUs, and what an instance of each carries; found once for a problem.

What a shape carries is a function of the pressure beside it, so an offer states for which pressure its rate holds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

from solvers.latency import limits
from solvers.latency.kernels import NEVER, needed_ratio
from solvers.planning.fleet.grids import ROUNDING, Floats, Ints, Kept, accepted_loads, read_grid, read_loads
from solvers.planning.fleet.kernels import smallest_share
from solvers.planning.fleet.room_shapes import RoomShapes, tabulate
from solvers.planning.fleet.room_view import RoomView
from solvers.planning.fleet.token_services import TokenFacts
from solvers.planning.judge.tolerances import is_at_most
from solvers.planning.machines import cap_type
from solvers.planning.pressures import Pressure, add_parts, slow_by
from solvers.planning.problem import Curve, GpuType, Node, Place, Problem, Profile, Service

if TYPE_CHECKING:
    from solvers.planning.fleet.token_shapes import TokenShape

SHARED_PRESSURE = 0.7  # of all on a shared GPU: times grow by 18 % at a sensitivity of .25 (HetSev, section 3.2)
STEP_SM_PERCENT = 10
EXACTLY = 1e-9  # GiB or watts: what sums of floats may add
KNEE_SHARE = 0.15  # longer than with all SMs: at the knee
NO_SHAPE = "no GPU type of the fleet keeps its SLO in any profiled shape"
NO_GPU = "no GPU may be used now: no node reports one, or all are cordoned, drained or failed"


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
        return cap_type(problem.gpu_types[self.gpu_type], self.max_w)


class Site(NamedTuple):
    """What rules tell apart of a node's GPUs, which all may have another price."""

    gpu_type: str
    templates: frozenset[str] | None  # that its nodes offer
    cell: str
    max_w: float  # that one of its GPUs may draw


@dataclass(frozen=True, slots=True)
class FleetShape:
    """The shape of an instance in a pool, and the most that it should carry beside neighbours."""

    pool: GpuPool
    variant: str
    batch: int
    sm_percent: int
    memory_gib: float
    pressure: Pressure
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
            pool, profile.variant, batch, sm_percent, profile.memory_gib[batch], complex(grid.pressure[sm_percent]),
            float(grid.power_w[sm_percent]), demand.cpu_cores, demand.host_memory_gib, exec_ms,
            profile.start_seconds, rate_per_second, share,
        )  # fmt: skip

    @property
    def price_per_hour(self) -> float:
        return self.pool.price_per_hour * self.share


class SpareRoom(NamedTuple):
    """What a GPU has left for one more instance, and what slows it there."""

    sm_percent: int
    memory_gib: float
    watts: float  # above what all that runs there draws when busy
    pressure: Pressure = 0.0  # of all that runs there
    slower: float = 1.0  # highest clock / clock

    @classmethod
    def idle(cls, kind: GpuType) -> SpareRoom:
        """Returns the room of a GPU on which nothing runs."""
        return cls(100, kind.memory_gib, kind.max_w - kind.idle_w)

    def less(self, sm_percent: int = 0, memory_gib: float = 0.0, watts: float = 0.0) -> SpareRoom:
        """Returns what is left of it next to something that takes so much."""
        left = self.sm_percent - sm_percent, self.memory_gib - memory_gib, self.watts - watts
        return SpareRoom(*left, self.pressure, self.slower)

    @property
    def is_exceeded(self) -> bool:
        """Returns whether more was taken than there was."""
        return self.sm_percent < 0 or self.memory_gib < -EXACTLY or self.watts < -EXACTLY


class _Cell(NamedTuple):
    """A batch at an SM% of a profile, beside neighbours."""

    batch: int
    sm_percent: int
    exec_ms: float
    rate_per_second: float
    share: float  # of the GPU, that is paid for: the larger of its SMs and memory, all where the service is dedicated


ListShapes: TypeAlias = Callable[[Service, GpuPool], list[FleetShape]]


class Offers:
    """The shapes of the services of a problem. They depend on no rate."""

    def __init__(self, problem: Problem) -> None:
        self._policy, self._gpu_types, self._profiles = problem.policy, problem.gpu_types, problem.profiles
        self.templates = {(model, v.name): v.template for model, known in problem.models.items() for v in known}
        self._token_facts = TokenFacts.of(problem)
        self._known: dict[tuple[object, ...], tuple[FleetShape, ...]] = {}
        self._tokens: dict[tuple[object, ...], tuple[TokenShape, ...]] = {}
        self._loads: dict[tuple[object, ...], Floats] = {}
        self._longest: dict[tuple[object, ...], Floats] = {}

    def find_profiles(self, service: Service, pool: GpuPool | Site | Node) -> list[Profile]:
        """Returns the profile of each variant that type and templates admit there, in the variants' order."""
        if service.gpu_types is not None and pool.gpu_type not in service.gpu_types:
            return []
        if service.cells is not None and not isinstance(pool, GpuPool) and pool.cell not in service.cells:
            return []
        found = []
        for variant in service.variants:
            profile = self._profiles.get((service.model, variant, pool.gpu_type))
            if profile and self.is_offered(service.model, variant, pool.templates):
                found.append(profile)
        return found

    def is_offered(self, model: str, variant: str, templates: frozenset[str] | None) -> bool:
        """Returns whether nodes with these templates offer the one of a variant."""
        template = self.templates.get((model, variant))
        return template is None or templates is None or template in templates

    def find_knee_shapes(self, service: Service, pools: Iterable[GpuPool]) -> list[FleetShape]:
        """Returns every batch at every tenth of the SMs up to its knee that carries anything within the SLO."""
        return self._find(service, pools, self._list_up_to_knee)

    def find_best_shapes(self, service: Service, pools: Iterable[GpuPool]) -> list[FleetShape]:
        """Returns, of each variant at each tenth of the SMs, the batch that carries most for its price; best first."""
        return self._find(service, pools, self._list_best)

    def find_alone_shapes(self, service: Service, pools: Iterable[GpuPool]) -> list[FleetShape]:
        """Returns the same without neighbours."""
        return self._find(service, pools, self._list_best_alone)

    def find_whole_shapes(self, service: Service, pools: Iterable[GpuPool]) -> list[FleetShape]:
        """Returns for each pool the variant and batch that carry most with a whole GPU, where any does."""
        return self._find(service, pools, self._list_whole)

    def find_lone_shapes(self, service: Service, pools: Iterable[GpuPool]) -> list[FleetShape]:
        """Returns for each pool and SM% the variant and batch that carry most alone, without batch timeouts."""
        return self._find(service, pools, self._list_lone)

    def find_token_shapes(self, service: Service) -> Sequence[TokenShape]:
        """Returns the shapes on whole GPUs in which an instance of a language model carries any load."""
        from solvers.planning.fleet.token_shapes import list_shapes  # compiled, and of language models alone

        terms = (service.name, service.model, service.variants, service.gpu_types, service.tokens)
        if (shapes := self._tokens.get(terms)) is None:
            shapes = self._tokens[terms] = tuple(list_shapes(self._token_facts, service))
        return shapes

    def find_least_share(self, service: Service, profile: Profile) -> float:
        """Returns the least share of a GPU's SMs for a request a second, alone and without batch timeouts.

        Only the points of the profile are tried. It is infinite where none keeps the SLO.
        """
        points = [(batch, sm, ms) for batch, curve in self._list_fitting(profile) for sm, ms in curve]
        if not points:
            return inf
        batches, percents, exec_ms = (np.array(column) for column in zip(*points, strict=True))
        rates = self._find_rates(service, batches, exec_ms, is_prompt=True)
        with np.errstate(divide="ignore"):
            return float(((np.ones(len(rates)) if service.is_dedicated else percents / 100) / rates).min())

    def find_longest_ms(self, service: Service, batches: Sequence[int], loads: Sequence[float]) -> Floats:
        """Returns the longest times at which each batch accepts each load, by batch, then load; 0 where none is."""
        terms = (service.slo_ms, service.percentile, service.variation, service.used_load, *batches, *loads)
        if (found := self._longest.get(terms)) is None:
            margin = 1 + self._policy.exec_margin
            rows = read_loads(service, self._policy, np.array(batches))
            ratios = np.array([needed_ratio(row, load * margin) for row in rows for load in loads])
            found = self._longest[terms] = np.where(ratios < NEVER, service.slo_ms / (margin * ratios), 0.0)
        return found

    def find_room_shapes(
        self, service: Service, view: RoomView, rows: Iterable[int], spend: Callable[[int], None]
    ) -> RoomShapes:
        """Returns what an instance carries in every shape on rows of a view; `spend` counts the steps."""
        return tabulate(view, rows, partial(self.find_profiles, service), service, self._policy, spend)

    def find_smallest(
        self, service: Service, pool: GpuPool, variant: str, part: float, room: SpareRoom
    ) -> FleetShape | None:  # fmt: skip
        """Returns the smallest share of this room that carries this rate; the one that carries most if none does."""
        profile, policy = self._profiles[service.model, variant, pool.gpu_type], self._policy
        demand, grid = profile.demand, read_grid(profile)
        slower = (1 + slow_by(demand.sensitivity, room.pressure)) * room.slower**demand.clock_exponent
        watts = room.watts * room.slower**demand.power_exponent
        idle = demand.most_sensitivity * policy.share_pressure if policy.pricing == "share" else 0.0
        row, sm_percent, rate = smallest_share(
            grid.exec_ms, grid.memory_gib, grid.power_w, grid.batches, self._read_loads(service, profile),
            service.slo_ms, 1 + policy.exec_margin, policy.utilization, slower, room.sm_percent, room.memory_gib, watts,
            idle, part,
        )  # fmt: skip
        if row < 0:
            return None
        batch, exec_ms = int(grid.batches[row]), float(grid.exec_ms[row, sm_percent]) * slower
        whole_gib = self._gpu_types[pool.gpu_type].memory_gib
        share = 1.0 if service.is_dedicated else max(sm_percent / 100, profile.memory_gib[batch] / whole_gib)
        return FleetShape.of(pool, profile, batch, sm_percent, exec_ms, rate * ROUNDING, share)

    def _read_loads(self, service: Service, profile: Profile) -> Floats:
        key = (*profile.key, service.percentile, service.variation, service.used_load)
        if (loads := self._loads.get(key)) is None:
            loads = self._loads[key] = read_loads(service, self._policy, read_grid(profile).batches)
        return loads

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

    def _list_up_to_knee(self, service: Service, pool: GpuPool) -> list[FleetShape]:
        return [
            FleetShape.of(pool, profile, *cell)
            for profile in self.find_profiles(service, pool)
            for cell in self._list_shared(service, profile, _find_knee, SHARED_PRESSURE)
        ]

    def _list_best(self, service: Service, pool: GpuPool) -> list[FleetShape]:
        return self._list_cheapest(service, pool, SHARED_PRESSURE)

    def _list_best_alone(self, service: Service, pool: GpuPool) -> list[FleetShape]:
        return self._list_cheapest(service, pool, 0.0)

    def _list_cheapest(self, service: Service, pool: GpuPool, pressure: float) -> list[FleetShape]:
        found: list[FleetShape] = []
        for profile in self.find_profiles(service, pool):
            best: dict[int, tuple[float, _Cell]] = {}
            for cell in self._list_shared(service, profile, _find_last, pressure):
                worth = cell.rate_per_second / cell.share
                if cell.sm_percent not in best or worth > best[cell.sm_percent][0]:
                    best[cell.sm_percent] = worth, cell
            found += [FleetShape.of(pool, profile, *cell) for _, cell in best.values()]
        return sorted(found, key=lambda shape: (shape.share / shape.rate_per_second, shape.sm_percent))

    def _list_whole(self, service: Service, pool: GpuPool) -> list[FleetShape]:
        kind = cap_type(self._gpu_types[pool.gpu_type], pool.max_w)
        shapes: list[FleetShape] = []
        for profile in self.find_profiles(service, pool):
            batches, last = list(profile.latency_ms), [curve[-1] for curve in profile.latency_ms.values()]
            if batches:
                rates = self._find_rates(service, np.array(batches), np.array([exec_ms for _, exec_ms in last]))
                shapes += [
                    FleetShape.of(pool, profile, batch, sm_percent, exec_ms, rate, 1.0)
                    for batch, (sm_percent, exec_ms), rate in zip(batches, last, rates.tolist(), strict=True)
                ]
        fitting = [
            shape
            for shape in shapes
            if is_at_most(kind.idle_w + shape.top_w, kind.max_w) and is_at_most(shape.memory_gib, kind.memory_gib)
        ]
        best = max(fitting or shapes, key=lambda shape: shape.rate_per_second, default=None)
        return [best] if best is not None and best.rate_per_second > 0 else []

    def _list_lone(self, service: Service, pool: GpuPool) -> list[FleetShape]:
        best: dict[int, tuple[Profile, _Cell]] = {}
        for profile in self.find_profiles(service, pool):
            cells = [(batch, sm) for batch, curve in self._list_fitting(profile) for sm in _list_percents(curve)]
            for cell in self._rate(service, profile, cells, 1.0, is_prompt=True):
                known = best.get(cell.sm_percent)
                if known is None or cell.rate_per_second > known[1].rate_per_second:
                    best[cell.sm_percent] = profile, cell
        return [
            FleetShape.of(pool, profile, *cell._replace(rate_per_second=cell.rate_per_second * ROUNDING))
            for _, (profile, cell) in sorted(best.items(), key=lambda entry: entry[0])
        ]

    def _list_fitting(self, profile: Profile) -> list[tuple[int, Curve]]:
        """Returns the batches that the type's memory holds, the smallest first, with their times."""
        memory_gib = self._gpu_types[profile.gpu_type].memory_gib
        return [(b, curve) for b, curve in sorted(profile.latency_ms.items()) if profile.memory_gib[b] <= memory_gib]

    def _list_shared(
        self, service: Service, profile: Profile, find_end: Callable[[Curve], int], pressure: float
    ) -> list[_Cell]:  # fmt: skip
        """Returns what carries anything beside neighbours that raise the pressure there to this one."""
        cells = [(b, sm) for b, curve in self._list_fitting(profile) for sm in _list_tenths(curve, find_end(curve))]
        percents = np.array([sm for _, sm in cells], dtype=np.int64)
        own = add_parts(read_grid(profile).pressure[percents])
        beside = np.maximum(0.0, pressure - own)  # alone if it exceeds that
        if service.is_dedicated:
            beside = np.zeros(len(cells))
        if self._policy.pricing == "share" and pressure > 0:
            beside = np.maximum(beside, self._policy.share_pressure * (1 - percents / 100))
        return self._rate(service, profile, cells, 1 + profile.demand.most_sensitivity * beside)

    def _rate(
        self, service: Service, profile: Profile, cells: Sequence[tuple[int, int]], slower: Floats | float,
        is_prompt: bool = False,
    ) -> list[_Cell]:  # fmt: skip
        """Returns those of these batches and SM% that carry anything, so much slower than alone."""
        grid, batches = read_grid(profile), np.array([batch for batch, _ in cells], dtype=np.int64)
        rows, percents = [grid.row_of[batch] for batch, _ in cells], [sm for _, sm in cells]
        exec_ms = grid.exec_ms[rows, percents] * slower
        rates = self._find_rates(service, batches, exec_ms, is_prompt=is_prompt)
        memory_share = grid.memory_gib[rows] / self._gpu_types[profile.gpu_type].memory_gib
        shares = np.maximum(np.array(percents) / 100, memory_share) if not service.is_dedicated else np.ones(len(cells))
        return [
            _Cell(*cell, time, rate, share)
            for cell, time, rate, share in zip(cells, exec_ms.tolist(), rates.tolist(), shares.tolist(), strict=True)
            if rate > 0
        ]

    def _find_rates(self, service: Service, batches: Ints, exec_ms: Floats, *, is_prompt: bool = False) -> Floats:
        """Returns the most that each batch carries at its time, neighbours included; 0 beyond the SLO."""
        margin = 1 + self._policy.exec_margin
        table, loads = limits(service.percentile, set(batches.tolist()), service.variation), np.zeros(len(batches))
        accepted_loads(table.prompt if is_prompt else table.loads, batches, service.slo_ms / (exec_ms * margin), loads)
        rates: Floats = np.minimum(loads / margin, self._policy.utilization) * batches * 1000 / exec_ms
        return rates


read_offers = Kept(Offers)


def why_no_shape(problem: Problem) -> str:
    """Returns why a service has no shape on any GPU of the fleet."""
    return NO_SHAPE if any(node.gpus for node in problem.nodes.values()) else NO_GPU


def _find_knee(curve: Curve) -> int:
    """Returns the smallest SM% of the curve with which a batch takes little longer than with all."""
    return next(sm for sm, ms in curve if ms <= curve[-1][1] * (1 + KNEE_SHARE))


def _list_tenths(curve: Curve, last: int) -> list[int]:
    """Returns the first SM% of the curve, every tenth of the SMs up to the last SM%, and that one."""
    first = curve[0][0]
    return sorted({first, last, *range(first - first % STEP_SM_PERCENT + STEP_SM_PERCENT, last, STEP_SM_PERCENT)})


def _find_last(curve: Curve) -> int:
    return curve[-1][0]


def _list_percents(curve: Curve) -> range:
    return range(curve[0][0], curve[-1][0] + 1)
