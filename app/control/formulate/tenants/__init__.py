"""The rules of tenants: what each is entitled to now, and what its budget allows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from agents.contract.assignments import AssignedInstance
from app.control.domain.snapshot import DeclaredObject, Snapshot
from app.control.domain.specs import gpu_type_of, node_price
from app.control.formulate.tenants.budget import BudgetAccount, budget_accounts, degrade_services, freeze_limits
from app.control.formulate.tenants.demand import (
    GpuUsage,
    gpu_types,
    gpus_per_rate,
    sum_use_by_service,
    sum_use_by_tenant,
    sum_use_of_assigned,
    tenant_demands,
)
from app.control.formulate.tenants.shares import fair_shares, find_entitled_limits, max_min_shares
from app.control.formulate.tenants.terms import TenantTerms, terms_of
from solvers.planning.problem import Problem

__all__ = [
    "BudgetAccount",
    "GpuUsage",
    "TenantTerms",
    "apply_tenant_rules",
    "budget_accounts",
    "fair_shares",
    "find_entitled_limits",
    "gpu_types",
    "gpus_per_rate",
    "max_min_shares",
    "node_prices",
    "sum_use_by_service",
    "sum_use_by_tenant",
    "tenant_demands",
    "terms_of",
]  # fmt: skip

FILLED_SHARE = 0.9  # of a fleet's GPUs that instances of many sizes fill in practice


def apply_tenant_rules(
    problem: Problem, snapshot: Snapshot, pinned: Sequence[tuple[str, AssignedInstance]] = ()
) -> Problem:
    """Returns the problem with tenants limited to their entitlements, and degraded where a budget asks for it.

    `pinned` are (node, instance) pairs outside the problem; what they use is deducted from guarantees and limits.
    """
    prices = node_prices(snapshot.declared)
    aside = sum_use_of_assigned(pinned, prices)
    terms = {
        tenant: tenant_terms.without(aside[tenant].gpus, aside[tenant].price_per_hour)
        if tenant in aside
        else tenant_terms
        for tenant, tenant_terms in terms_of(snapshot.declared).items()
    }
    by_service = sum_use_by_service(problem, problem.state.running if problem.state else ())
    used = sum_use_by_tenant(problem, by_service)
    # Without guarantees no tenant is cut, so their demands need not be computed.
    needs = (
        tenant_demands(problem, by_service)
        if any(tenant_terms.guarantee_gpus for tenant_terms in terms.values())
        else {}
    )
    gpus = sum(node.gpu_count for node in problem.nodes.values())
    full = max(FILLED_SHARE * gpus, min(sum(usage.gpus for usage in used.values()), gpus))
    limits = find_entitled_limits(terms, needs, full, {tenant: usage.gpus for tenant, usage in used.items()})
    spent = {tenant: facts.spent for tenant, facts in snapshot.tenants.items()}
    known = budget_accounts(terms, spent, snapshot.at)
    if any(account.is_frozen for account in known.values()):
        assigned = ((node, instance) for node, wanted in snapshot.in_force.items() for instance in wanted.instances)
        limits = freeze_limits(limits, known, sum_use_of_assigned(assigned, prices), aside)
    return degrade_services(replace(problem, limits=limits), known)


def node_prices(declared: Sequence[DeclaredObject]) -> dict[str, float]:
    """Returns, by node, the price for its type, region and purchase."""
    types = {item.name: item.spec for item in declared if item.kind == "GpuType"}
    return {
        item.name: node_price(item.spec, types[gpu_type_of(item.spec)])
        for item in declared
        if item.kind == "Node" and gpu_type_of(item.spec) in types
    }
