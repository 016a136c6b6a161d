"""Computes the cost of a plan: GPUs that services use, unserved rates and, apart from these, jobs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import fsum

from solvers.planning.judge.billing import gpu_price, is_billed_whole, whole_price
from solvers.planning.judge.jobs import is_node_opened_for_jobs, is_opened_for_jobs
from solvers.planning.judge.readings import JobResident, JudgedGpu, Resident, watts
from solvers.planning.judge.services import sum_unserved_rate
from solvers.planning.plan import Unplaced, Unserved
from solvers.planning.problem import Job, Node, Policy, Service

WHOLE_NODE = -1  # in the place of a GPU: what is paid for all of a node


def resource_cost(gpu: JudgedGpu, policy: Policy, busy_w: float) -> float:
    """Returns what services pay for a GPU in an hour; `busy_w` are their watts above idle times their busy fractions.

    pricing gpu: its price, or nothing on a node that is billed whole: `node_costs` has it. pricing share: price x
    max(sum of SM% / 100, sum of memory / its memory), the whole price where a dedicated service runs. Where something
    outside the problem pays for the node: a millionth of it. The objective weighs all of these.
    Energy: (idleW + busy watts) / 1000 x what the objective makes of a kilowatt-hour.
    """
    if not gpu.residents:
        return 0.0
    energy = (gpu.type.idle_w + busy_w) / 1000 * policy.energy_price_per_kwh
    if is_billed_whole(gpu.node, policy):
        return energy
    return gpu_price(gpu.node) * find_used_part(gpu, policy) * policy.money_weight + energy


def node_costs(node: Node, gpus: Sequence[JudgedGpu], policy: Policy) -> tuple[float, float]:
    """Returns what services pay for all of a node that is billed whole, and what jobs pay: each its price or nothing.

    Services pay if one of them runs on any of `gpus`, which are those of its GPUs that hold anything.
    """
    if any(gpu.residents for gpu in gpus):
        return whole_price(node) * policy.money_weight, 0.0
    return 0.0, whole_price(node) if is_node_opened_for_jobs(node, gpus) else 0.0


def find_used_part(gpu: JudgedGpu, policy: Policy) -> float:
    """Returns the part of a GPU that services pay for."""
    if policy.pricing == "gpu" or any(line.service and line.service.is_dedicated for line in gpu.residents):
        return 1.0
    sms = sum(line.instance.sm_percent for line in gpu.residents)
    memory_gib = fsum(line.instance.memory_gib for line in gpu.residents)
    return max(sms / 100, memory_gib / gpu.type.memory_gib)


def job_gpu_cost(gpu: JudgedGpu, policy: Policy) -> float:
    """Returns what jobs pay for a GPU in an hour: its price if they opened it, and their energy above idle.

    The idle watts of a GPU with jobs alone are free: it would idle without them, too.
    """
    if not gpu.jobs:
        return 0.0
    energy = fsum(watts(line, gpu) for line in gpu.jobs) / 1000 * policy.energy_price_per_kwh
    return (gpu.node.price_per_hour if is_opened_for_jobs(gpu, policy) else 0.0) + energy


def idle_job_cost(job: Job, policy: Policy, lines: Sequence[JobResident], claims: Sequence[Unplaced]) -> float:
    """Returns the cost of a job that does not run.

    With a deadline: unplacedPrice x priority / 100, also for a job that runs but is listed as missing it. Without:
    max(waitingPrice x priority / 100, maxPricePerHour).
    """
    if job.deadline is not None:
        return policy.unplaced_price * job.priority / 100 if claims or not lines else 0.0
    if lines:
        return 0.0
    return max(policy.waiting_price * job.priority / 100, job.max_price_per_hour or 0.0)


def price_unserved(service: Service, policy: Policy, claims: Sequence[Unserved]) -> float:
    """unservedPrice x priority / 100 x max(unserved rate, 1), where there is any; an objective may weigh it"""
    rate = sum_unserved_rate(service, claims)
    price = policy.unserved_price * service.priority / 100 * service.unserved_weight
    return price * max(rate, 1.0) if rate > 0 else 0.0


def busy_share(line: Resident) -> float:
    """Returns the fraction of time that an instance is busy; 1 if its execution time is not known."""
    if line.exec_ms is None:
        return 1.0
    instance = line.instance
    return _busy_fraction(int(instance.batch), line.exec_ms, instance.rate_per_second, instance.batch_timeout_ms)


@lru_cache(maxsize=100_000)  # instances that run alike in many places are simulated once
def _busy_fraction(batch: int, exec_ms: float, rate_per_second: float, timeout_ms: float) -> float:
    from solvers.planning.judge.busy import busy_fraction  # compiled, and seldom needed

    return busy_fraction(batch, exec_ms, rate_per_second, timeout_ms)
