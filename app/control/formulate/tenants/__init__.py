"""Tenants: what each is entitled to now, and what its budget allows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from agents.contract import AssignedInstance
from app.control.domain.snapshot import Snapshot
from app.control.formulate.tenants.budget import BudgetAccount, budget_accounts, degrade_services, freeze_limits
from app.control.formulate.tenants.demand import (
    GpuUsage,
    gpu_types,
    gpus_per_rate,
    tenant_demands,
    used_by_assigned,
    used_by_service,
    used_by_tenant,
)
from app.control.formulate.tenants.prices import node_prices
from app.control.formulate.tenants.shares import entitled_limits, fair_shares, max_min_shares
from app.control.formulate.tenants.terms import TenantTerms, terms_of
from solvers.planning.problem import Limit, Problem

__all__ = [
    "BudgetAccount",
    "GpuUsage",
    "TenantRuling",
    "TenantTerms",
    "apply_tenant_rules",
    "budget_accounts",
    "entitled_limits",
    "fair_shares",
    "gpu_types",
    "gpus_per_rate",
    "max_min_shares",
    "node_prices",
    "tenant_demands",
    "terms_of",
    "used_by_service",
    "used_by_tenant",
]  # fmt: skip

FILLED = 0.9  # of a fleet's GPUs: what instances of many sizes fill in practice


@dataclass(frozen=True)
class TenantRuling:
    """A problem under the rules of its tenants, and what the rules said."""

    problem: Problem
    accounts: Mapping[str, BudgetAccount]
    used: Mapping[str, GpuUsage]
    limits: Mapping[str, Limit]  # the entitled ones; less than declared where a tenant is cut


def apply_tenant_rules(
    problem: Problem, snapshot: Snapshot, pinned: Sequence[tuple[str, AssignedInstance]] = ()
) -> TenantRuling:
    """The problem with what tenants are entitled to as their limits, and degraded where a budget asks for it.

    `pinned` are (node, instance) that stand outside of the problem: what they take is taken off guarantees and limits.
    """
    prices = node_prices(snapshot.declared)
    aside = used_by_assigned(pinned, prices)
    terms = {
        tenant: one.beside(aside[tenant].gpus, aside[tenant].price_per_hour) if tenant in aside else one
        for tenant, one in terms_of(snapshot.declared).items()
    }
    by_service = used_by_service(problem, problem.state.running if problem.state else ())
    used = used_by_tenant(problem, by_service)
    # Without a guarantee nobody is cut, and what they ask for need not be known.
    asked = tenant_demands(problem, by_service) if any(one.guarantee_gpus for one in terms.values()) else {}
    gpus = sum(node.gpu_count for node in problem.nodes.values())
    full = max(FILLED * gpus, min(sum(one.gpus for one in used.values()), gpus))
    limits = entitled_limits(terms, asked, full, {tenant: one.gpus for tenant, one in used.items()})
    spent = {tenant: facts.spent for tenant, facts in snapshot.tenants.items()}
    known = budget_accounts(terms, spent, snapshot.at)
    if any(one.is_frozen for one in known.values()):
        standing = ((node, one) for node, wanted in snapshot.in_force.items() for one in wanted.instances)
        limits = freeze_limits(limits, known, used_by_assigned(standing, prices), aside)
    return TenantRuling(
        problem=degrade_services(replace(problem, limits=limits), known),
        accounts=known,
        used=used,
        limits=limits,
    )
