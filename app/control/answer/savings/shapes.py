"""Finds the shapes that an instance of a service may have on a GPU without interference.

HetSev's baseline suffers no interference, and finds any number of GPUs, on nodes like the fleet's, at the lowest price
that it pays for their type.
It comes out cheaper than it could be, so the true savings are at least as high as reported.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from solvers.latency import limits
from solvers.planning.problem import Problem, Profile, Service
from solvers.planning.search.promise import accepted_loads


@dataclass(frozen=True, slots=True)
class InstanceShape:
    """An instance on a GPU type, and the highest rate that it carries within the SLO."""

    gpu_type: str
    variant: str
    batch: int
    sm_percent: int
    memory_gib: float
    exec_ms: float
    rate_per_second: float
    share: float  # of the GPU: the larger of its SMs and memory; 1 where the service is dedicated


def find_shapes(problem: Problem, service: Service) -> list[InstanceShape]:
    """Returns by GPU type and SM% the batch and variant that carry most."""
    types = sorted({node.gpu_type for node in problem.nodes.values()})
    found: dict[tuple[str, int], InstanceShape] = {}
    for gpu_type in types:
        if service.gpu_types is not None and gpu_type not in service.gpu_types:
            continue
        for variant in service.variants:
            if profile := problem.profiles.get((service.model, variant, gpu_type)):
                for shape in _of_profile(problem, service, profile):
                    known = found.get((gpu_type, shape.sm_percent))
                    if known is None or shape.rate_per_second > known.rate_per_second:
                        found[gpu_type, shape.sm_percent] = shape
    return [found[key] for key in sorted(found)]


def prices(problem: Problem) -> dict[str, float]:
    """Returns the lowest price per hour of each GPU type in this fleet."""
    found: dict[str, float] = {}
    for node in problem.nodes.values():
        found[node.gpu_type] = min(found.get(node.gpu_type, node.price_per_hour), node.price_per_hour)
    return found


def _of_profile(problem: Problem, service: Service, profile: Profile) -> Iterator[InstanceShape]:
    whole_gib = problem.gpu_types[profile.gpu_type].memory_gib
    margin = 1 + problem.policy.exec_margin
    batches = sorted(batch for batch in profile.latency_ms if profile.memory_gib[batch] <= whole_gib)
    rows = limits(service.percentile, set(batches), service.variation).prompt
    for batch in batches:
        points = profile.latency_ms[batch]
        percents = np.arange(points[0][0], points[-1][0] + 1)
        exec_ms = np.interp(percents, [sm for sm, _ in points], [ms for _, ms in points])
        loads = np.zeros(len(percents))
        accepted_loads(rows, np.full(len(percents), batch), service.slo_ms / (exec_ms * margin), loads)
        rates = np.minimum(loads / margin, problem.policy.utilization) * batch * 1000 / exec_ms
        memory = profile.memory_gib[batch]
        for at in np.flatnonzero(rates > 0):
            sm_percent = int(percents[at])
            share = 1.0 if service.is_dedicated else max(sm_percent / 100, memory / whole_gib)
            yield InstanceShape(
                profile.gpu_type, profile.variant, batch, sm_percent, memory, float(exec_ms[at]),
                float(rates[at]) * (1 - 1e-9), share,
            )  # fmt: skip
