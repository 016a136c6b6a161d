"""A tenant's monthly budget: what is spent, what will be spent, and what happens when it is used up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from app.control.formulate.tenants.demand import GpuUsage, gpu_types, gpus_per_rate
from app.control.formulate.tenants.terms import TenantTerms
from solvers.planning.problem import Limit, Problem, Service

DEGRADED_PRIORITY_DIVISOR = 10  # services of a degraded tenant weigh a tenth
NEAR_SHARE = 0.9  # of a budget; the pace alone is no alarm on the first day of a month


@dataclass(frozen=True, slots=True)
class BudgetAccount:
    """A tenant's spending against its budget."""

    spent: float
    per_month: float
    by_month_end: float  # at the pace so far
    over_budget: str  # the consequence: alarm, freeze, degrade

    @property
    def is_over(self) -> bool:
        return self.spent >= self.per_month

    @property
    def is_frozen(self) -> bool:
        return self.is_over and self.over_budget == "freeze"

    @property
    def is_near(self) -> bool:
        """True if nine tenths are spent and the rest will not last the month."""
        return not self.is_over and self.spent >= NEAR_SHARE * self.per_month and self.by_month_end > self.per_month


def budget_accounts(
    terms: Mapping[str, TenantTerms], spent: Mapping[str, float], now: datetime
) -> dict[str, BudgetAccount]:
    """Returns the account of every tenant with a budget."""
    began = now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    ends = (began + timedelta(days=32)).replace(day=1)
    passed = max((now - began) / (ends - began), 1e-6)
    return {
        tenant: BudgetAccount(
            spent=spent.get(tenant, 0.0),
            per_month=tenant_terms.budget_per_month,
            by_month_end=spent.get(tenant, 0.0) / passed,
            over_budget=tenant_terms.over_budget,
        )
        for tenant, tenant_terms in terms.items()
        if tenant_terms.budget_per_month is not None
    }


def freeze_limits(
    limits: Mapping[str, Limit],
    over: Mapping[str, BudgetAccount],
    held: Mapping[str, GpuUsage],
    aside: Mapping[str, GpuUsage],
) -> dict[str, Limit]:
    """Returns limits under which frozen tenants get no more than they hold, in GPUs and in money.

    What they hold on a lost node counts too: it may be placed elsewhere. `aside` is used outside of the plan.
    """
    found = dict(limits)
    for tenant, account in over.items():
        if account.is_frozen:
            has, out, limit = held.get(tenant, GpuUsage()), aside.get(tenant, GpuUsage()), found.get(tenant, Limit())
            found[tenant] = Limit(
                _least(limit.gpus, has.gpus - out.gpus),
                _least(limit.price_per_hour, has.price_per_hour - out.price_per_hour),
                "budget",
            )
    return found


def degrade_services(problem: Problem, over: Mapping[str, BudgetAccount]) -> Problem:
    """Returns the problem with services of overspent `degrade` tenants on their smallest variant, at a tenth of their
    priority."""
    tenants = {tenant for tenant, account in over.items() if account.is_over and account.over_budget == "degrade"}
    if not tenants:
        return problem
    types = gpu_types(problem)
    services = {
        name: _degrade(problem, service, types) if service.tenant in tenants else service
        for name, service in problem.services.items()
    }
    return replace(problem, services=services)


def _degrade(problem: Problem, service: Service, types: Sequence[str]) -> Service:
    known = {variant.name: variant.accuracy for variant in problem.models[service.model]}
    least = min(
        (variant for variant in service.variants if known[variant] >= service.mean_accuracy),
        key=lambda variant: gpus_per_rate(problem, replace(service, variants=(variant,)), types),
        default=None,
    )
    variants = service.variants if least is None else (least,)
    return replace(service, variants=variants, priority=max(1, service.priority // DEGRADED_PRIORITY_DIVISOR))


def _least(limit: float | None, has: float) -> float:
    # Shares are sums of floats, and an unchanged plan must fit.
    has *= 1 + 1e-9
    return has if limit is None else min(limit, has)
