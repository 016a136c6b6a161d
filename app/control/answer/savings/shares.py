"""Divides the price of shared GPUs by weight: the larger of SMs and memory."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from math import fsum

from solvers.planning.judge.billing import is_billed_whole, price_of_used
from solvers.planning.plan import Plan
from solvers.planning.problem import Problem


@dataclass(frozen=True, slots=True)
class GpuHolding:
    """The part of a GPU that an instance holds."""

    service: str
    sm_percent: float
    memory_gib: float


@dataclass(frozen=True, slots=True)
class PaidGpu:
    """A GPU that services run on, or a node that is billed whole, with the price of all its GPUs.

    `is_whole`: they pay all of it under any pricing of the policy.
    """

    gpu_type: str
    price_per_hour: float
    held: tuple[GpuHolding, ...]
    is_whole: bool = False


def list_gpus(problem: Problem, plan: Plan) -> list[PaidGpu]:
    """Returns the GPUs that a plan's services run on, or the nodes where these are billed whole."""
    found: dict[tuple[str, int], list[GpuHolding]] = defaultdict(list)
    for instance in plan.instances:
        is_whole = is_billed_whole(problem.nodes[instance.node], problem.policy)
        holding = GpuHolding(instance.service, instance.sm_percent, instance.memory_gib)
        for node, gpu in instance.places:
            found[node, -1 if is_whole else gpu].append(holding)
    return [
        PaidGpu(problem.nodes[node].gpu_type, price_of_used(problem.nodes[node], problem.policy, 1), tuple(held))
        for (node, _), held in sorted(found.items())
    ]


def price_services(problem: Problem, gpus: Iterable[PaidGpu]) -> dict[str, float]:
    """Returns the price per hour by service."""
    found: dict[str, float] = defaultdict(float)
    for gpu in gpus:
        whole_gib = problem.gpu_types[gpu.gpu_type].memory_gib
        weights = [max(change.sm_percent / 100, change.memory_gib / whole_gib) for change in gpu.held]
        part = _part(problem, gpu, whole_gib)
        for change, weight in zip(gpu.held, weights, strict=True):
            found[change.service] += gpu.price_per_hour * part * weight / fsum(weights)
    return dict(found)


def sum_by_tenant(problem: Problem, of_services: dict[str, float]) -> dict[str, float]:
    """Sums up the services of each tenant."""
    found: dict[str, float] = defaultdict(float)
    for service, paid in sorted(of_services.items()):
        found[problem.services[service].tenant] += paid
    return dict(found)


def _part(problem: Problem, gpu: PaidGpu, whole_gib: float) -> float:
    dedicated = any(problem.services[change.service].is_dedicated for change in gpu.held)
    if gpu.is_whole or dedicated or problem.policy.pricing == "gpu":
        return 1.0
    return max(
        fsum(change.sm_percent for change in gpu.held) / 100, fsum(change.memory_gib for change in gpu.held) / whole_gib
    )
