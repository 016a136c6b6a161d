"""The shapes that a service's instances may have on each kind of GPU, and the rate that each should carry.

HetSev has one shape for each GPU type: its batch is profiled, and GPUs are shared without a limit of SMs. Here an
instance has a share of the SMs, so each tenth of them is a shape, with the batch that carries most for its price.
"""

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
PRESSURE = 0.7  # of all on a shared GPU; beside it, times grow by 18 % at a sensitivity of .25 (HetSev, section 3.2)


def fleet_shapes(problem: Problem, service: Service, pools: list[GpuPool]) -> dict[GpuPool, list[FleetShape]]:
    """Returns the shapes of a service by pool, those of the lowest price for their rate first."""
    found: dict[GpuPool, list[FleetShape]] = {}
    for pool in pools:
        shapes = [
            shape
            for profile in runnable_profiles(problem, service, pool)
            for shape in _of_profile(problem, service, profile, pool)
        ]
        if shapes:
            found[pool] = sorted(shapes, key=lambda shape: (shape.share / shape.rate_per_second, shape.sm_percent))
    return found


def _of_profile(problem: Problem, service: Service, profile: Profile, pool: GpuPool) -> Iterator[FleetShape]:
    """Yields for each tenth of the SMs the batch that carries most for its price."""
    policy, demand = problem.policy, profile.demand
    whole_gib = problem.gpu_types[pool.gpu_type].memory_gib
    batches = [batch for batch in sorted(profile.latency_ms) if profile.memory_gib[batch] <= whole_gib]
    if not batches:
        return
    rows = limits(service.percentile, batches, service.variation).loads
    points = [sm for sm, _ in profile.latency_ms[batches[0]]]
    steps = sorted(
        {points[0], points[-1], *range(STEP_SM_PERCENT, points[-1], STEP_SM_PERCENT)} - set(range(points[0]))
    )
    pressure, top_w = _at(demand.pressure, steps), _at(demand.power_w, steps)
    beside = np.maximum(0.0, PRESSURE - pressure)  # alone where it exceeds that by itself
    if service.is_dedicated:
        beside = np.zeros(len(steps))
    if policy.pricing == "share":
        beside = np.maximum(beside, policy.share_pressure * (1 - np.array(steps) / 100))
    slower = 1 + demand.sensitivity * beside
    best: list[FleetShape | None] = [None] * len(steps)
    for batch in batches:
        exec_ms = _at(profile.latency_ms[batch], steps, beyond=inf) * slower
        loads = np.zeros(len(steps))
        ratios = service.slo_ms / (exec_ms * (1 + policy.exec_margin))
        accepted_loads(rows, np.full(len(steps), batch), ratios, loads)
        rates = np.minimum(loads / (1 + policy.exec_margin), policy.utilization) * batch * 1000 / exec_ms
        memory = profile.memory_gib[batch]
        for at, sm in enumerate(steps):
            share = 1.0 if service.is_dedicated else max(sm / 100, memory / whole_gib)
            known = best[at]
            if rates[at] > 0 and (known is None or rates[at] / share > known.rate_per_second / known.share):
                best[at] = FleetShape(
                    pool, profile.variant, batch, sm, memory, float(pressure[at]), float(top_w[at]),
                    demand.cpu_cores, demand.host_memory_gib, float(exec_ms[at]), profile.start_seconds,
                    float(rates[at]), share,
                )  # fmt: skip
    yield from (shape for shape in best if shape is not None)


def _at(curve: Curve, steps: list[int], beyond: float | None = None) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return np.interp(steps, [sm for sm, _ in curve], [value for _, value in curve], right=beyond)
