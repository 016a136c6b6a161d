"""The true speed of a simulated fleet: by profiles and neighbours.

A plan knows profiles; the fleet knows the truth. If both are equal, a correct plan meets its SLOs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from solvers.llm.iteration import TokenLengths
from solvers.planning.pressures import slow_by
from solvers.planning.problem import Curve, Demand, GpuType, Problem, ProfileKey, Service

# Of a copy that still runs although its profile was deleted.
UNKNOWN_MS = 50.0
UNKNOWN_START_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class SimulatedResident:
    """A process on a GPU, as far as it slows others down and draws power."""

    demand: Demand
    sm_percent: float
    key: tuple[str, ...] = ()  # what runs, for a truth that does not believe profiles
    batch: float = 1.0
    busy: float = 1.0  # the part of the time


@dataclass(frozen=True)
class FleetTruth:
    """A problem's figures."""

    problem: Problem
    start_seconds: Mapping[ProfileKey, float] = field(default_factory=dict)

    def exec_ms(
        self,
        key: ProfileKey,
        batch: float,
        sm_percent: float,
        neighbours: Sequence[SimulatedResident],
        clock_mhz: float = 0.0,
    ) -> float:
        """Returns the time of one batch of this size limit, with these neighbours."""
        profile = self.problem.profiles.get(key)
        if profile is None:
            return UNKNOWN_MS
        batches = profile.latency_ms
        profiled = int(batch) if int(batch) in batches else min(batches, key=lambda size: (abs(size - batch), size))
        alone = interpolate(batches[profiled], sm_percent)
        return alone * self._slow(profile.demand, key[2], sm_percent, neighbours, clock_mhz)

    def batches_ms(
        self,
        key: ProfileKey,
        batch: float,
        sm_percent: float,
        neighbours: Sequence[SimulatedResident],
        clock_mhz: float,
        random: np.random.Generator,
        count: int,
    ) -> NDArray[np.float64] | None:
        """Returns times of single batches, where these depend on what neighbours do just then; else None."""
        return None

    def units_per_second(
        self,
        job: str,
        gpu_type: str,
        sm_percent: float,
        neighbours: Sequence[SimulatedResident],
        clock_mhz: float,
    ) -> float:
        """Returns the speed of a job; 0 without a profile."""
        profile = self.problem.jobs[job].profiles.get(gpu_type) if job in self.problem.jobs else None
        if profile is None:
            return 0.0
        return interpolate(profile.units_per_second, sm_percent) / self._slow(
            profile.demand, gpu_type, sm_percent, neighbours, clock_mhz
        )

    def starts_in(self, key: ProfileKey) -> float:
        return self.start_seconds.get(key, UNKNOWN_START_SECONDS)

    def watts(
        self, gpu_type: str, residents: Sequence[tuple[SimulatedResident, float]], clock_mhz: float = 0.0
    ) -> float:
        """Returns the power of a GPU; each resident comes with the share of time in which it is busy."""
        kind = self.problem.gpu_types[gpu_type]
        ratio = (clock_mhz or kind.top_clock_mhz) / kind.top_clock_mhz
        drawn = sum(
            busy * interpolate(resident.demand.power_w, resident.sm_percent) * ratio**resident.demand.power_exponent
            for resident, busy in residents
        )
        return float(kind.idle_w + drawn)

    def lengths(self, service: Service) -> TokenLengths:
        """Returns the lengths of a service's requests, which any of its variants can hold."""
        assert service.tokens
        sizes = [variant.llm for variant in self.problem.models[service.model] if variant.name in service.variants]
        contexts = [size.context_tokens for size in sizes if size is not None]
        return replace(
            service.tokens.lengths, context_tokens=min(contexts, default=service.tokens.lengths.context_tokens)
        )

    def kind(self, gpu_type: str) -> GpuType:
        return self.problem.gpu_types[gpu_type]

    def _slow(
        self,
        demand: Demand,
        gpu_type: str,
        sm_percent: float,
        neighbours: Sequence[SimulatedResident],
        clock_mhz: float,
    ) -> float:
        policy = self.problem.policy
        beside = sum((interpolate(resident.demand.pressure, resident.sm_percent) for resident in neighbours), 0j)
        factor = 1.0 + slow_by(demand.sensitivity, beside)
        if policy.pricing == "share":
            remaining = max(0.0, 100.0 - sm_percent - sum(resident.sm_percent for resident in neighbours))
            factor *= 1.0 + demand.most_sensitivity * policy.share_pressure * remaining / 100.0
        top = self.problem.gpu_types[gpu_type].top_clock_mhz
        return float(factor * (top / (clock_mhz or top)) ** demand.clock_exponent)


@lru_cache(maxsize=65536)
def interpolate(curve: Curve, sm_percent: float) -> float:
    """Interpolates linearly, flat beyond the ends."""
    before = curve[0]
    for point in curve:
        if sm_percent <= point[0]:
            if point[0] == before[0]:
                return point[1]
            return before[1] + (point[1] - before[1]) * (sm_percent - before[0]) / (point[0] - before[0])
        before = point
    return curve[-1][1]
