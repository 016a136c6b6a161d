"""Divides what the plan in force costs per hour among tenants, exactly as the ledger does."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from math import fsum

from solvers.planning.plan import Plan
from solvers.planning.problem import Problem

IDLE, UNALLOCATED, OTHERS = "__idle__", "__unallocated__", "__others__"
MOST_TENANTS = 100  # that metrics name; the rest is one sum


@dataclass(frozen=True, slots=True)
class GpuHolder:
    """The part of a GPU that an instance or a job of a tenant holds."""

    tenant: str
    sm: float
    memory: float
    dedicated: bool = False


def cost_rates(problem: Problem, plan: Plan) -> dict[str, float]:
    """Returns the cost per hour by tenant, and that of idle parts and of empty GPUs (docs/money.md)."""
    gpus: dict[tuple[str, int], list[GpuHolder]] = defaultdict(list)
    for instance in plan.instances:
        service = problem.services[instance.service]
        memory = instance.memory_gib / problem.type_of(instance.node).memory_gib
        holder = GpuHolder(service.tenant, instance.sm_percent / 100, memory, service.is_dedicated)
        for place in instance.places:
            gpus[place].append(holder)
    for job in plan.jobs:
        if job.job not in problem.jobs or job.node not in problem.nodes:
            continue  # the job has ended since, or its node is lost
        memory = job.memory_gib / problem.type_of(job.node).memory_gib
        gpus[job.node, job.gpu].append(GpuHolder(problem.jobs[job.job].tenant, job.sm_percent / 100, memory))
    found: dict[str, list[float]] = defaultdict(list)
    for (node, _), holders in gpus.items():
        price = problem.nodes[node].price_per_hour
        weights = [max(each.sm, each.memory) for each in holders]
        used = min(1.0, max(fsum(each.sm for each in holders), fsum(each.memory for each in holders)))
        used = 1.0 if any(each.dedicated for each in holders) else used
        for holder, weight in zip(holders, weights, strict=True):
            found[holder.tenant].append(price * used * weight / fsum(weights))
        found[IDLE].append(price * (1 - used))
    held = defaultdict[str, int](int)
    for node, _ in gpus:
        held[node] += 1
    found[UNALLOCATED] = [node.price_per_hour * (node.gpu_count - held[name]) for name, node in problem.nodes.items()]
    return {tenant: fsum(parts) for tenant, parts in found.items()}


def top_tenants(rates: Mapping[str, float], most: int = MOST_TENANTS) -> dict[str, float]:
    """Keeps the most expensive tenants by name and sums up the others, so that metrics stay few."""
    tenants = sorted((name for name in rates if name not in (IDLE, UNALLOCATED)), key=lambda name: (-rates[name], name))
    found = {name: rates[name] for name in (*tenants[:most], IDLE, UNALLOCATED) if name in rates}
    return found | ({OTHERS: fsum(rates[name] for name in tenants[most:])} if len(tenants) > most else {})
