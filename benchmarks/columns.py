"""Builds the columns of the resource LP: what a service's whole rate takes on each GPU type, pressure level and SM%."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cache

import numpy as np
from numpy.typing import NDArray

from benchmarks.kernels import fill_accepted_loads
from solvers.latency import busy_fraction
from solvers.planning.fleet.grids import read_loads
from solvers.planning.problem import Curve, Policy, Problem, Profile, Service

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

LOADS = np.linspace(0.0, 1.0, 65)
LEVELS = np.array([0.4, 0.7, 1.0, 1.5])  # sums of pressure on a GPU
SM_PERCENTS = np.arange(10.0, 101.0, 10.0)


@dataclass(frozen=True, slots=True)
class Columns:
    """A row for each column: its service, its class (type x level), its SM% and variant, and what it takes."""

    service: Ints
    kind: Ints
    shape: Ints
    sm: Floats  # GPUs, as if each was filled with its like: an SM% of 40 takes half a GPU
    memory: Floats  # GPUs, by memory
    pressure: Floats
    watts: Floats  # above idle, while they serve
    instances: Floats

    @property
    def level(self) -> Floats:
        return LEVELS[self.kind % len(LEVELS)]

    @property
    def gpu_type(self) -> Ints:
        return self.kind // len(LEVELS)

    def some(self, which: Ints) -> Columns:
        """Returns only these columns."""
        return Columns(*(getattr(self, field.name)[which] for field in fields(self)))

    def gathered(self, group: Ints) -> Columns:
        """Returns the columns of groups of services that all do the same: a column that a member lacks is left out."""
        group_of = group[self.service]
        shapes = int(self.shape.max()) + 1
        kinds = int(self.kind.max()) + 1
        keys, index, count = np.unique(
            (group_of * kinds + self.kind) * shapes + self.shape, return_inverse=True, return_counts=True
        )
        whole = count == np.bincount(group)[keys // (kinds * shapes)]
        taken = (
            np.bincount(index, values)[whole]
            for values in (self.sm, self.memory, self.pressure, self.watts, self.instances)
        )
        keys = keys[whole]
        return Columns(keys // (kinds * shapes), keys // shapes % kinds, keys % shapes, *taken)


@dataclass(frozen=True, slots=True)
class ProfileArrays:
    """A profile as arrays: [level, batch, SM%]."""

    exec_ms: Floats
    memory: Floats  # share of the GPU's, by batch
    pressure: Floats  # by SM%
    watts: Floats  # by SM%
    batch: Floats


def columns(problem: Problem, services: Sequence[Service], types: Sequence[str]) -> Columns:
    """Returns every (service, type, level, SM%, variant) that serves something, with the batch that serves most."""
    runs = {
        key: _run(profile, problem.gpu_types[profile.gpu_type].memory_gib) for key, profile in problem.profiles.items()
    }
    variants = sorted({variant for service in services for variant in service.variants})
    parts: list[Columns] = []
    for number, service in enumerate(services):
        for place, name in enumerate(types):
            for variant in service.variants:
                run = runs.get((service.model, variant, name))
                if run is None or (service.gpu_types is not None and name not in service.gpu_types):
                    continue
                parts.append(_make_columns(run, service, number, place, variants.index(variant), problem.policy))
    return Columns(*(np.concatenate([getattr(part, field.name) for part in parts]) for field in fields(Columns)))


def _run(profile: Profile, memory_gib: float) -> ProfileArrays:
    batches = sorted(profile.latency_ms)
    alone = np.array([_read_curve(profile.latency_ms[batch]) for batch in batches])
    own = _read_curve(profile.demand.whole_pressure)
    level = LEVELS[:, None, None]
    slowed = 1 + profile.demand.most_sensitivity * np.maximum(0, level - own)
    return ProfileArrays(
        exec_ms=np.where(own <= level + 1e-9, alone * slowed, np.inf),
        memory=np.array([profile.memory_gib[batch] / memory_gib for batch in batches]),
        pressure=own,
        watts=_read_curve(profile.demand.power_w),
        batch=np.array(batches, dtype=np.float64),
    )


def _make_columns(
    run: ProfileArrays, service: Service, number: int, place: int, variant: int, policy: Policy
) -> Columns:
    margin = 1 + policy.exec_margin
    batch = run.batch[:, None]
    load = np.empty_like(run.exec_ms)
    rows = read_loads(service, policy, run.batch.astype(np.int64))
    fill_accepted_loads(rows, service.slo_ms / (run.exec_ms * margin), load)
    rate = np.minimum(load / margin, policy.utilization) * batch * 1000 / run.exec_ms
    best = rate.argmax(axis=1)
    most = rate.max(axis=1)
    level, step = np.nonzero(most > 1e-9)
    instances = service.rate_per_second / most[level, step]
    chosen = best[level, step]
    taken = most[level, step] * run.exec_ms[level, chosen, step] / run.batch[chosen] / 1000
    busy = np.zeros(len(step))
    for batch in np.unique(run.batch[chosen]):
        same = run.batch[chosen] == batch
        busy[same] = np.interp(taken[same], LOADS, _busy(int(batch)))
    return Columns(
        service=np.full(len(step), number),
        kind=place * len(LEVELS) + level,
        shape=variant * len(SM_PERCENTS) + step,
        sm=instances / np.floor(100 / SM_PERCENTS[step]),
        memory=instances * run.memory[chosen],
        pressure=instances * run.pressure[step],
        watts=instances * run.watts[step] * busy,
        instances=instances,
    )


@cache
def _busy(batch: int) -> Floats:
    """Returns the share of time a server is busy at each of LOADS: more than the load, for not every batch is full."""
    return np.array([busy_fraction(batch, float(load)) for load in LOADS])


def _read_curve(curve: Curve) -> Floats:
    points, values = zip(*curve, strict=True)
    return np.asarray(np.interp(SM_PERCENTS, points, values))
