"""Decides which problems are small and plain enough to be proved, and whether the proved plan obeys every rule."""

from __future__ import annotations

import numpy as np

from solvers.planning.judge.billing import is_billed_whole
from solvers.planning.search.bill import gpus_paid
from solvers.planning.search.tables import Tables
from solvers.planning.search.workshop import closed_gpus

MOST_GPUS = 16
MOST_SERVICES = 12
MOST_CHOICES = 50_000  # of how many GPUs of each pool are paid


def applies(t: Tables) -> bool:
    """Returns whether `prove` is worth starting: the cost takes few values, and patterns of GPUs can be listed."""
    policy = t.problem.policy
    return (
        policy.pricing == "gpu"
        and not t.has_both
        and policy.same_model_per_gpu == 1
        and 0 < len(t.services) <= MOST_SERVICES
        and sum(len(pool.gpus) for pool in t.pools) <= MOST_GPUS
        and float(np.prod([float(len(gpus_paid(pool))) for pool in t.pools])) <= MOST_CHOICES
        and not _has_mixed_node(t)
    )


def _has_mixed_node(t: Tables) -> bool:
    """Returns whether GPUs of a node billed whole have different caps; their pool knows the smallest alone."""
    problem = t.problem
    return any(
        is_billed_whole(node, problem.policy) and len(node.group_by_watts(problem.gpu_types[node.gpu_type])) > 1
        for node in problem.nodes.values()
    )


def is_whole(t: Tables) -> bool:
    """Returns whether the search covers every rule that can bind.

    It ignores minInstances, availability, mean accuracies, CPU and host memory of nodes, tenants' limits, energy, the
    fleet's watts and jobs that must stay where they run: without them a bound stays a bound, but the plan found may
    break them.
    """
    problem = t.problem
    cores = float(t.cpu_cores.sum())
    hosted = float(t.host_memory_gib.sum())
    roomy = all(
        node.gpu_count * cores <= node.cpu_cores and node.gpu_count * hosted <= node.host_memory_gib
        for node in problem.nodes.values()
    )
    return (
        roomy
        and not (t.min_instances > 1).any()
        and not any(service.availability.binds(service.min_instances) for service in problem.services.values())
        and not any(service.mean_accuracy for service in problem.services.values())
        and not problem.limits
        and not closed_gpus(t).any()
        and problem.policy.energy_price_per_kwh == 0
        and problem.policy.power_budget_w is None
    )
