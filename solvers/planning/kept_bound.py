"""Keeps what the last search for a bound found, and gives later plans a bound from it while only rates changed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING

from solvers.planning.plan import Certificate
from solvers.planning.problem import Node, Policy, Problem, Service

if TYPE_CHECKING:
    from solvers.planning.duals import Duals  # needs numpy, which readers of plans may lack

BOUND_ERROR_SHARE = 2e-6  # of a cost: a bound that exceeds the cost by more than rounding is wrong
ANY_RATE = 1.0
FULL_PLANS_ALONE = "where language models run, only a full plan has one"


@dataclass(frozen=True, slots=True)
class KeptBound:
    """The prices that a search found, the problem that it searched, and when."""

    problem: Problem
    duals: Duals
    at: datetime


def add_bound(certificate: Certificate, problem: Problem, kept: KeptBound | None, now: datetime) -> Certificate:
    """Returns the certificate with the bound that the last search proves for this problem, or why it proves none."""
    if kept is None:
        is_mixed = any(service.tokens is not None for service in problem.services.values())
        return drop_bound(certificate, FULL_PLANS_ALONE if is_mixed else "no search has found one yet")
    if changed := what_changed(kept.problem, problem):
        return drop_bound(certificate, f"{changed} changed since it was computed")
    cost = certificate.cost.total
    bound = kept.duals.bound({name: service.rate_per_second for name, service in problem.services.items()})
    if bound > cost + BOUND_ERROR_SHARE * max(1.0, cost):
        return drop_bound(certificate, "a plan that keeps every rule would cost more")
    age_seconds = max(0.0, (now - kept.at).total_seconds())
    return replace(drop_bound(certificate, ""), bound=min(bound, cost), bound_age_seconds=age_seconds)


def drop_bound(certificate: Certificate, reason: str) -> Certificate:
    """Returns the certificate without a bound, and the reason."""
    return replace(
        certificate, bound=None, bound_age_seconds=0.0, no_bound_reason=reason, programme=None, shortfalls=()
    )


def what_changed(before: Problem, after: Problem) -> str:
    """Names what differs, besides rates, of all that a bound is computed from; empty if nothing does.

    A bound leaves out what runs and the GPUs that could be had, and what moves cost over the horizon; and jobs, but
    that where shares are paid and there are none, it counts SMs as idle that jobs may take later.
    """
    if before is after:
        return ""
    differ = {
        "profiles": before.profiles != after.profiles,
        "prices": _prices(before) != _prices(after),
        "the fleet": before.gpu_types != after.gpu_types or _inventory(before) != _inventory(after),
        "services": before.models != after.models or _promises(before) != _promises(after),
        "limits": before.limits != after.limits,
        "jobs": before.policy.pricing == "share" and bool(after.jobs) and not before.jobs,
        "the policy": _lasting(before.policy) != _lasting(after.policy),
    }
    return " and ".join(name for name, is_other in differ.items() if is_other)


def _prices(problem: Problem) -> object:
    policy = problem.policy
    nodes = {name: (node.price_per_hour, node.purchase, node.pricing) for name, node in problem.nodes.items()}
    return policy.unserved_price, policy.energy_price_per_kwh, policy.money_weight, nodes


def _inventory(problem: Problem) -> object:
    return {name: _facts(node) for name, node in problem.nodes.items()}


def _facts(node: Node) -> tuple[object, ...]:
    facts = (node.gpu_type, node.gpus, node.cpu_cores, node.host_memory_gib, node.region, node.templates)
    return (*facts, node.caps_w)


def _promises(problem: Problem) -> dict[str, Service]:
    return {name: replace(service, rate_per_second=ANY_RATE) for name, service in problem.services.items()}


def _lasting(policy: Policy) -> Policy:
    """Returns the policy without prices and planner, and without the horizon, which only weighs moves."""
    lasting = replace(policy, unserved_price=0.0, energy_price_per_kwh=0.0, money_weight=1.0, horizon_minutes=0.0)
    return replace(lasting, planner="")
