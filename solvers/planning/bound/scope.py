"""Tells where the bound holds: for every problem but those whose negative numbers break its monotonicity."""

from __future__ import annotations

import numpy as np

from solvers.planning.search.arrays import MOST_RESIDENTS
from solvers.planning.search.tables import Tables


def why_not(t: Tables) -> str | None:
    """Returns the reason why no bound can be computed, or None."""
    felt = (t.sensitivity.real, t.sensitivity.imag, t.pressure.real, t.pressure.imag)
    if any((part < 0).any() for part in felt):
        return "a pressure or sensitivity below 0"
    if (t.clock_exponent < 0).any():
        return "a clockExponent below 0"
    if (t.power_w < 0).any() or t.problem.policy.energy_price_per_kwh < 0:
        return "watts or an energy price below 0"
    return None


def left_out(t: Tables) -> tuple[str, ...]:
    """Returns the rules of this problem that the bound ignores: it holds, but could be higher with them."""
    policy, limits = t.problem.policy, t.problem.limits.values()
    types = t.problem.gpu_types.values()
    memory = t.memory_gib  # infinite for batches that a profile does not have
    grows = np.isfinite(memory) & (memory > memory.min(axis=1, initial=np.inf, keepdims=True))
    idle = policy.pricing == "share" and policy.share_pressure > 0
    rules = {
        "memory beyond the smallest batch": bool(grows.any()),
        "how minInstances share a rate": bool((t.min_instances > 1).any()),
        "where availability places instances": any(
            service.availability.binds(service.min_instances) for service in t.problem.services.values()
        ),
        "promised mean accuracies": any(service.mean_accuracy for service in t.problem.services.values()),
        "CPU cores and host memory": bool(t.cpu_cores.any() or t.host_memory_gib.any()),
        "the power budget": policy.power_budget_w is not None,
        "maxW": bool(t.power_w.any()) and any(kind.max_w < float("inf") for kind in types),
        "capW": bool(t.power_w.any()) and any(node.caps_w for node in t.problem.nodes.values()),
        "tenants' limits": any(limit.gpus is not None or limit.price_per_hour is not None for limit in limits),
        "clientsPerGpu across models": policy.clients_per_gpu < MOST_RESIDENTS,
        "the room that jobs take": bool(t.problem.jobs),
        "idle SMs that jobs may take": idle and bool(t.problem.jobs),
        "idle SMs times neighbours' pressure": idle and not t.problem.jobs,
    }
    return tuple(rule for rule, binds in rules.items() if binds)
