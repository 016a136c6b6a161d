"""All shapes of a service up to the knee of its times over SM%: what planners choose from that share GPUs."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf

import numpy as np

from solvers.latency import limits
from solvers.planning.problem import Curve, Problem, Profile, Service
from solvers.planning.rooms import FleetShape, GpuPool
from solvers.planning.runnable import runnable_profiles
from solvers.planning.search.promise import accepted_loads

STEP_SM_PERCENT = 10
KNEE_SHARE = 0.15  # longer than with all SMs: at the knee
SHARED_PRESSURE = 0.7  # of all on a shared GPU, that rates allow for


def knee_shapes(problem: Problem, service: Service, pools: list[GpuPool]) -> list[FleetShape]:
    """Returns every batch at every tenth of the SMs up to its knee that carries anything within the SLO."""
    return [
        shape
        for pool in pools
        for profile in runnable_profiles(problem, service, pool)
        for shape in _of_profile(problem, service, profile, pool)
    ]


def knee_percent(curve: Curve) -> int:
    """Returns the smallest SM% of the curve with which a batch takes little longer than with all."""
    return next(sm for sm, ms in curve if ms <= curve[-1][1] * (1 + KNEE_SHARE))


def _of_profile(problem: Problem, service: Service, profile: Profile, pool: GpuPool) -> Iterator[FleetShape]:
    policy, demand = problem.policy, profile.demand
    whole_gib = problem.gpu_types[pool.gpu_type].memory_gib
    for batch, curve in sorted(profile.latency_ms.items()):
        memory_gib = profile.memory_gib[batch]
        if memory_gib > whole_gib:
            continue
        knee = knee_percent(curve)
        steps = sorted({curve[0][0], knee, *range(STEP_SM_PERCENT, knee, STEP_SM_PERCENT)} - set(range(curve[0][0])))
        pressure, top_w = _at(demand.pressure, steps), _at(demand.power_w, steps)
        beside = np.zeros(len(steps)) if service.is_dedicated else np.maximum(0.0, SHARED_PRESSURE - pressure)
        if policy.pricing == "share":
            beside = np.maximum(beside, policy.share_pressure * (1 - np.array(steps) / 100))
        exec_ms = _at(curve, steps, beyond=inf) * (1 + demand.sensitivity * beside)
        loads = np.zeros(len(steps))
        rows = limits(service.percentile, [batch], service.variation).loads
        ratios = service.slo_ms / (exec_ms * (1 + policy.exec_margin))
        accepted_loads(rows, np.full(len(steps), batch), ratios, loads)
        rates = np.minimum(loads / (1 + policy.exec_margin), policy.utilization) * batch * 1000 / exec_ms
        for at, sm in enumerate(steps):
            if rates[at] > 0:
                share = 1.0 if service.is_dedicated else max(sm / 100, memory_gib / whole_gib)
                yield FleetShape(
                    pool, profile.variant, batch, sm, memory_gib, float(pressure[at]), float(top_w[at]),
                    demand.cpu_cores, demand.host_memory_gib, float(exec_ms[at]), profile.start_seconds,
                    float(rates[at]), share,
                )  # fmt: skip


def _at(curve: Curve, steps: list[int], beyond: float | None = None) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return np.interp(steps, [sm for sm, _ in curve], [value for _, value in curve], right=beyond)
