"""Tabulates what an instance of a service may carry on each GPU that is looked at, in every shape."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple, TypeAlias

import numpy as np

from solvers.latency import limits
from solvers.latency.kernels import BUSY_POINTS
from solvers.latency.rates import none_left
from solvers.planning.explain.gpu_groups import FreeGpu, GpuGroup
from solvers.planning.explain.kernels import caps
from solvers.planning.explain.meter import Meter
from solvers.planning.problem import GpuType, Limit, Node, Policy, Problem, Profile, ProfileKey, Service
from solvers.planning.search.tables import SM, Floats, Ints, everywhere, inside

SURE = 1 - 1e-9


class ServiceTerms(NamedTuple):
    """A service, the policy and its tenant's limit: all that a relaxation may change."""

    service: Service
    policy: Policy
    limit: Limit | None  # of its tenant


@dataclass(frozen=True, slots=True)
class Measured:
    """A profile as the loops read it."""

    batches: Ints
    exec_ms: Floats  # [batch, SM%]
    memory_gib: Floats
    pressure: Floats
    power_w: Floats


Measurements: TypeAlias = dict[ProfileKey, Measured]


@dataclass(frozen=True, slots=True)
class Way:
    """A profile at a clock."""

    profile: Profile
    at: Measured
    clock_mhz: float
    ratio: float  # highest clock / clock


@dataclass(frozen=True)
class ShapeOptions:
    """Shapes by row and SM%: a row is a way of running on a spot. Spots without any have no row."""

    lot: GpuGroup
    spot: Ints  # [row] -> spot of the lot
    way: Ints  # [row]
    ways: tuple[Way, ...]
    cap: Floats  # [row, SM%], 0 where it does not fit
    by: Ints  # index of the batch
    exec_ms: Floats

    @cached_property
    def rows_of(self) -> dict[int, Ints]:
        """Returns the rows of each spot."""
        starts = [0, *(np.flatnonzero(self.spot[1:] != self.spot[:-1]) + 1).tolist()] if len(self.spot) else []
        ends = [*starts[1:], len(self.spot)]
        return {
            int(self.spot[start]): np.arange(start, end) for start, end in zip(starts, ends, strict=True)
        }  # fmt: skip

    @cached_property
    def least_sm(self) -> dict[int, int]:
        """Returns the least SM% with which a spot carries anything."""
        least = (self.cap > 0).argmax(axis=1)
        return {spot: int(least[rows].min()) for spot, rows in self.rows_of.items()}

    @cached_property
    def least_w(self) -> dict[int, float]:
        """Returns the least watts with which a spot carries anything."""
        least = np.where(self.cap > 0, self.busy_w, np.inf).min(axis=1)
        return {spot: float(least[rows].min()) for spot, rows in self.rows_of.items()}

    @cached_property
    def busy_w(self) -> Floats:
        """Returns the mean watts above idle of each shape at full load."""
        watts = np.zeros_like(self.cap)
        for number, way in enumerate(self.ways):
            rows = self.way == number
            batch = way.at.batches[self.by[rows]]
            load = np.minimum(self.cap[rows] * self.exec_ms[rows] / batch / 1000, 1.0)
            place = load * (BUSY_POINTS - 1)
            cell = np.minimum(place.astype(np.int64), BUSY_POINTS - 2)
            chances = none_left()
            low = chances[batch, cell]
            none = low + (chances[batch, cell + 1] - low) * (place - cell)
            each = np.maximum(load * batch, 1e-300)
            busy = np.where(load <= 0, 0.0, np.where(load >= 1, 1.0, 1 / (1 + none * np.exp(-each) / each)))
            watts[rows] = busy * (way.at.power_w * way.ratio**-way.profile.demand.power_exponent)
        return watts


@dataclass
class Notes:
    """Results to use again: profiles as loops read them, and options of groups under terms."""

    meter: Meter = field(default_factory=Meter)
    measured: Measurements = field(default_factory=dict)
    options: dict[tuple[object, ...], ShapeOptions] = field(default_factory=dict)


def options(problem: Problem, lot: GpuGroup, terms: ServiceTerms, notes: Notes) -> ShapeOptions:
    """Returns every shape that the service's SLO, memory, watts and neighbours allow there."""
    service, policy = terms.service, terms.policy
    key = (
        id(lot), service.slo_ms, service.percentile, service.variants, service.gpu_types, service.is_dedicated,
        policy.same_model_per_gpu, policy.clients_per_gpu,
    )  # fmt: skip
    known = notes.options.get(key)
    if known is None or known.lot is not lot:
        known = notes.options[key] = _looked_at(problem, lot, terms, notes)
    return known


def _looked_at(problem: Problem, lot: GpuGroup, terms: ServiceTerms, notes: Notes) -> ShapeOptions:
    service, policy = terms.service, terms.policy
    alike: dict[tuple[object, ...], list[int]] = defaultdict(list)
    for number, spot in enumerate(lot.spots):
        if admits(spot, service, policy):
            clock = 0.0 if spot.is_empty else spot.clocks_mhz[0]
            alike[spot.gpu_type.name, spot.node.templates, clock].append(number)
    ways: list[Way] = []
    at, by_way, cap, by, exec_ms = [], [], [], [], []
    share_pressure = policy.share_pressure if policy.pricing == "share" else 0.0
    for members in alike.values():
        which = np.array(members, dtype=np.int64)
        some = lot.spots[members[0]]
        for way in ways_on(problem, some, service, notes.measured):
            demand, size = way.profile.demand, (len(which), SM)
            mine, batch, time = np.zeros(size), np.zeros(size, dtype=np.int64), np.zeros(size)
            looked = caps(
                which, lot.sm_percent, lot.memory_gib, lot.watts, lot.pressure, lot.first, lot.neighbours,
                way.at.exec_ms, way.at.memory_gib, way.at.batches, loads_of(way.at, service),
                way.at.pressure, way.at.power_w, demand.sensitivity, way.ratio**demand.clock_exponent,
                way.ratio**-demand.power_exponent, service.slo_ms, 1 + policy.exec_margin, policy.utilization,
                share_pressure, mine, batch, time,
            )  # fmt: skip
            notes.meter.spend(looked + 500)
            useful = mine.any(axis=1)
            at.append(which[useful])
            by_way.append(np.full(int(useful.sum()), len(ways), dtype=np.int64))
            cap.append(mine[useful] * SURE)
            by.append(batch[useful])
            exec_ms.append(time[useful])
            ways.append(way)
    if not ways:
        none = np.zeros(0, dtype=np.int64)
        return ShapeOptions(
            lot, none, none, (), np.zeros((0, SM)), np.zeros((0, SM), dtype=np.int64), np.zeros((0, SM))
        )
    spots, order = np.concatenate(at), np.argsort(np.concatenate(at), kind="stable")
    return ShapeOptions(
        lot, spots[order], np.concatenate(by_way)[order], tuple(ways), np.concatenate(cap)[order],
        np.concatenate(by)[order], np.concatenate(exec_ms)[order],
    )  # fmt: skip


def admits(spot: FreeGpu, service: Service, policy: Policy) -> bool:
    """Tells if the rules on neighbours and types admit the service on this GPU at all."""
    return not (
        (service.gpu_types is not None and spot.gpu_type.name not in service.gpu_types)
        or spot.residents >= policy.clients_per_gpu
        or spot.is_dedicated
        or (service.is_dedicated and not spot.is_empty)
        or spot.models.get(service.model, 0) >= policy.same_model_per_gpu
    )


def ways_on(problem: Problem, spot: FreeGpu, service: Service, memo: Measurements) -> Iterator[Way]:
    for profile in admitted(problem, spot.node, service):
        at = memo.get(profile.key)
        if at is None:
            at = memo[profile.key] = measured(profile)
        for clock in spot.clocks_mhz:
            yield Way(profile, at, clock, _ratio(spot.gpu_type, clock))


def _ratio(gpu_type: GpuType, clock_mhz: float) -> float:
    return gpu_type.top_clock_mhz / clock_mhz


def admitted(problem: Problem, node: Node, service: Service) -> Iterator[Profile]:
    """Yields the profiles by which the service may run on a node."""
    templates = {variant.name: variant.template for variant in problem.models[service.model]}
    for variant in service.variants:
        profile = problem.profiles.get((service.model, variant, node.gpu_type))
        template = templates.get(variant)
        if profile and (node.templates is None or template is None or template in node.templates):
            yield profile


def loads_of(at: Measured, service: Service) -> Floats:
    """Returns the accepted loads of each batch at the service's percentile."""
    rows: Floats = limits(service.percentile, at.batches.tolist()).loads[at.batches]
    return rows


def measured(profile: Profile) -> Measured:
    """Tabulates every batch at every SM%."""
    batches = sorted(profile.latency_ms)
    return Measured(
        np.array(batches, dtype=np.int64),
        np.ascontiguousarray([inside(profile.latency_ms[batch]) for batch in batches]),
        np.array([profile.memory_gib[batch] for batch in batches], dtype=np.float64),
        everywhere([profile.demand.pressure])[0].copy(),
        everywhere([profile.demand.power_w])[0].copy(),
    )
