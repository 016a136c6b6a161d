"""The shapes that an instance may have on a node's GPUs, and the most that each carries."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import inf

from solvers import latency
from solvers.planning.judge.readings import power, value_at
from solvers.planning.judge.tolerances import SURVIVING_UTILIZATION
from solvers.planning.machines import cap_type
from solvers.planning.problem import Demand, GpuType, Node, Policy, Problem, Profile, Service


@dataclass(frozen=True, slots=True)
class CheckedShape:
    """A variant, a batch, a share and a clock."""

    variant: str
    batch: int
    sm_percent: int
    clock_mhz: float
    memory_gib: float
    alone_ms: float  # at this clock
    pressure: float
    busy_w: float  # above idle, at this clock
    demand: Demand

    def exec_ms(self, beside: float, idle_pressure: float) -> float:
        """Returns its time among neighbours of this pressure, and that of the SMs that nothing uses."""
        sensitivity = self.demand.sensitivity.real
        return self.alone_ms * (1 + sensitivity * beside) * (1 + sensitivity * idle_pressure)


def shapes_on(problem: Problem, service: Service, node: Node) -> list[CheckedShape]:
    """Returns every shape in which an instance carries anything alone on a GPU of the node."""
    kind = cap_type(problem.gpu_types[node.gpu_type], min(node.caps_w, default=inf))  # clocks for the least of its caps
    if service.gpu_types is not None and kind.name not in service.gpu_types:
        return []
    found: list[CheckedShape] = []
    for variant in problem.models[service.model]:
        profile = problem.profiles.get((service.model, variant.name, kind.name))
        offered = node.templates is None or not variant.template or variant.template in node.templates
        if profile is None or variant.name not in service.variants or not offered:
            continue
        for clock_mhz in _clocks(problem, kind):
            found += _shapes_of(profile, kind, clock_mhz)
    return [
        shape
        for shape in found
        if shape.memory_gib <= kind.memory_gib and most_carried(problem.policy, service, shape, 0.0, 0.0) > 0
    ]


def _clocks(problem: Problem, kind: GpuType) -> tuple[float, ...]:
    """Returns the clocks worth a choice: a lower one only helps a board to hold its watts."""
    largest = [
        max(watts for _, watts in profile.demand.power_w)
        for profile in problem.profiles.values()
        if profile.gpu_type == kind.name
    ]
    most = sum(sorted(largest)[-problem.policy.clients_per_gpu :]) * problem.policy.same_model_per_gpu
    return kind.clocks_mhz if kind.idle_w + most > kind.max_w else kind.clocks_mhz[-1:]


def _shapes_of(profile: Profile, kind: GpuType, clock_mhz: float) -> list[CheckedShape]:
    demand, ratio = profile.demand, kind.top_clock_mhz / clock_mhz
    slower, lower = power(ratio, demand.clock_exponent), power(1 / ratio, demand.power_exponent)
    return [
        CheckedShape(
            profile.variant, batch, sm, clock_mhz, profile.memory_gib[batch], value_at(curve, sm) * slower,
            value_at(demand.pressure, sm).real, value_at(demand.power_w, sm) * lower, demand,
        )
        for batch, curve in profile.latency_ms.items()
        for sm in range(curve[0][0], min(curve[-1][0], 100) + 1)
    ]  # fmt: skip


def most_carried(
    policy: Policy, service: Service, shape: CheckedShape, beside: float, idle_pressure: float
) -> float:  # fmt: skip
    """Returns the largest rate within the SLO and the utilization, 0 if the SLO is missed at any."""
    exec_ms = shape.exec_ms(beside, idle_pressure)
    judged_ms = exec_ms * (1 + policy.exec_margin)
    if not 0 < judged_ms <= service.slo_ms:
        return 0.0
    within_slo = _rate_within_slo(shape.batch, judged_ms, service.slo_ms, service.percentile, service.variation)
    return min(within_slo, policy.utilization * 1000 * shape.batch / exec_ms)


@lru_cache(maxsize=1_000_000)
def _rate_within_slo(batch: int, judged_ms: float, slo_ms: float, percentile: float, variation: float) -> float:
    return latency.max_rate(batch, judged_ms, slo_ms, percentile, variation)[0]


def rate_when_a_node_is_lost(shape: CheckedShape, beside: float, idle_pressure: float) -> float:
    """Returns what the rule `survives_a_node` counts of an instance on another node."""
    return SURVIVING_UTILIZATION * shape.batch * 1000 / shape.exec_ms(beside, idle_pressure)
