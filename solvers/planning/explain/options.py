"""Tabulates what an instance of a service may carry on each GPU that is looked at, in every shape."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np

from solvers.latency.kernels import BUSY_POINTS
from solvers.latency.rates import none_left
from solvers.planning.explain.gpu_groups import FreeGpu, GpuGroup
from solvers.planning.explain.meter import Meter
from solvers.planning.grids import SM, Floats, Ints, ProfileGrid, read_grid, read_loads
from solvers.planning.kernels import caps
from solvers.planning.offers import read_offers
from solvers.planning.problem import GpuType, Limit, Policy, Problem, Profile, Service

SURE_SHARE = 1 - 1e-9


class ServiceTerms(NamedTuple):
    """A service, the policy and its tenant's limit: all that a relaxation may change."""

    service: Service
    policy: Policy
    limit: Limit | None  # of its tenant


@dataclass(frozen=True, slots=True)
class Way:
    """A profile at a clock."""

    profile: Profile
    at: ProfileGrid
    clock_mhz: float
    ratio: float  # highest clock / clock


@dataclass(frozen=True)
class ShapeOptions:
    """Shapes by row and SM%: a row is a way of running on a GPU. GPUs without any have no row."""

    group: GpuGroup
    gpu: Ints  # [row] -> index in the group
    way: Ints  # [row]
    ways: tuple[Way, ...]
    cap: Floats  # [row, SM%], 0 where it does not fit
    by: Ints  # index of the batch
    exec_ms: Floats

    @cached_property
    def rows_of(self) -> dict[int, Ints]:
        """Returns the rows of each GPU."""
        starts = [0, *(np.flatnonzero(self.gpu[1:] != self.gpu[:-1]) + 1).tolist()] if len(self.gpu) else []
        ends = [*starts[1:], len(self.gpu)]
        return {
            int(self.gpu[start]): np.arange(start, end) for start, end in zip(starts, ends, strict=True)
        }  # fmt: skip

    @cached_property
    def least_sm(self) -> dict[int, int]:
        """Returns the least SM% with which a GPU carries anything."""
        least = (self.cap > 0).argmax(axis=1)
        return {gpu: int(least[rows].min()) for gpu, rows in self.rows_of.items()}

    @cached_property
    def least_w(self) -> dict[int, float]:
        """Returns the least watts with which a GPU carries anything."""
        least = np.where(self.cap > 0, self.busy_w, np.inf).min(axis=1)
        return {gpu: float(least[rows].min()) for gpu, rows in self.rows_of.items()}

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
    """Results to use again: options of groups under terms; and the work spent on them."""

    meter: Meter = field(default_factory=Meter)
    options: dict[tuple[object, ...], ShapeOptions] = field(default_factory=dict)


def options(problem: Problem, group: GpuGroup, terms: ServiceTerms, notes: Notes) -> ShapeOptions:
    """Returns every shape that the service's SLO, memory, watts and neighbours allow there."""
    service, policy = terms.service, terms.policy
    key = (
        id(group), service.slo_ms, service.percentile, service.variants, service.gpu_types, service.cells,
        service.used_load, service.variation, service.is_dedicated,
        policy.same_model_per_gpu, policy.clients_per_gpu,
    )  # fmt: skip
    known = notes.options.get(key)
    if known is None or known.group is not group:
        known = notes.options[key] = _looked_at(problem, group, terms, notes)
    return known


def _looked_at(problem: Problem, group: GpuGroup, terms: ServiceTerms, notes: Notes) -> ShapeOptions:
    service, policy = terms.service, terms.policy
    alike: dict[tuple[object, ...], list[int]] = defaultdict(list)
    for number, gpu in enumerate(group.gpus):
        if admits(gpu, service, policy):
            clock = 0.0 if gpu.is_empty else gpu.clocks_mhz[0]
            alike[gpu.gpu_type.name, gpu.node.templates, gpu.node.cell, clock].append(number)
    ways: list[Way] = []
    at, by_way, cap, by, exec_ms = [], [], [], [], []
    share_pressure = policy.share_pressure if policy.pricing == "share" else 0.0
    for members in alike.values():
        which = np.array(members, dtype=np.int64)
        some = group.gpus[members[0]]
        for way in ways_on(problem, some, service):
            demand, size = way.profile.demand, (len(which), SM)
            most, batch, time = np.zeros(size), np.zeros(size, dtype=np.int64), np.zeros(size)
            looked = caps(
                which, group.sm_percent, group.memory_gib, group.watts, group.pressure, group.first, group.neighbours,
                way.at.exec_ms, way.at.memory_gib, way.at.batches, read_loads(service, policy, way.at.batches),
                way.at.pressure, way.at.power_w, demand.sensitivity, way.ratio**demand.clock_exponent,
                way.ratio**-demand.power_exponent, service.slo_ms, 1 + policy.exec_margin, policy.utilization,
                share_pressure, most, batch, time,
            )  # fmt: skip
            notes.meter.spend(looked + 500)
            useful = most.any(axis=1)
            at.append(which[useful])
            by_way.append(np.full(int(useful.sum()), len(ways), dtype=np.int64))
            cap.append(most[useful] * SURE_SHARE)
            by.append(batch[useful])
            exec_ms.append(time[useful])
            ways.append(way)
    if not ways:
        none = np.zeros(0, dtype=np.int64)
        return ShapeOptions(
            group, none, none, (), np.zeros((0, SM)), np.zeros((0, SM), dtype=np.int64), np.zeros((0, SM))
        )
    gpus, order = np.concatenate(at), np.argsort(np.concatenate(at), kind="stable")
    return ShapeOptions(
        group, gpus[order], np.concatenate(by_way)[order], tuple(ways), np.concatenate(cap)[order],
        np.concatenate(by)[order], np.concatenate(exec_ms)[order],
    )  # fmt: skip


def admits(gpu: FreeGpu, service: Service, policy: Policy) -> bool:
    """Returns whether the rules on neighbours and types admit the service on this GPU at all."""
    return not (
        (service.gpu_types is not None and gpu.gpu_type.name not in service.gpu_types)
        or gpu.residents >= policy.clients_per_gpu
        or gpu.is_dedicated
        or (service.is_dedicated and not gpu.is_empty)
        or gpu.models.get(service.model, 0) >= policy.same_model_per_gpu
    )


def ways_on(problem: Problem, gpu: FreeGpu, service: Service) -> Iterator[Way]:
    for profile in read_offers(problem).find_profiles(service, gpu.node):
        for clock in gpu.clocks_mhz:
            yield Way(profile, read_grid(profile), clock, _ratio(gpu.gpu_type, clock))


def _ratio(gpu_type: GpuType, clock_mhz: float) -> float:
    return gpu_type.top_clock_mhz / clock_mhz
