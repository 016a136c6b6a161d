"""A tenant's budget of the month: what is spent of it, what will be, and what follows when it is gone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from app.control.formulate.tenants.demand import GpuUsage, gpu_types, gpus_per_rate
from app.control.formulate.tenants.terms import TenantTerms
from solvers.planning.problem import Limit, Problem, Service

LESS_URGENT = 10  # over budget and degraded, its services weigh a tenth
NEAR = 0.9  # of a budget; pace alone is no alarm on the first day of a month


@dataclass(frozen=True, slots=True)
class BudgetAccount:
    """How a tenant stands with its budget."""

    spent: float
    per_month: float
    by_month_end: float  # at the pace so far
    over_budget: str  # what follows: alarm, freeze, degrade

    @property
    def is_over(self) -> bool:
        return self.spent >= self.per_month

    @property
    def is_frozen(self) -> bool:
        return self.is_over and self.over_budget == "freeze"

    @property
    def is_near(self) -> bool:
        """Nine tenths are gone, and the rest will not last the month."""
        return not self.is_over and self.spent >= NEAR * self.per_month and self.by_month_end > self.per_month


def budget_accounts(
    terms: Mapping[str, TenantTerms], spent: Mapping[str, float], now: datetime
) -> dict[str, BudgetAccount]:
    """Of every tenant with a budget."""
    began = now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    ends = (began + timedelta(days=32)).replace(day=1)
    passed = max((now - began) / (ends - began), 1e-6)
    return {
        tenant: BudgetAccount(
            spent=spent.get(tenant, 0.0),
            per_month=one.budget_per_month,
            by_month_end=spent.get(tenant, 0.0) / passed,
            over_budget=one.over_budget,
        )
        for tenant, one in terms.items()
        if one.budget_per_month is not None
    }


def freeze_limits(
    limits: Mapping[str, Limit],
    over: Mapping[str, BudgetAccount],
    held: Mapping[str, GpuUsage],
    aside: Mapping[str, GpuUsage],
) -> dict[str, Limit]:
    """Limits under which frozen tenants get nothing more than they hold, in GPUs and in money.

    What they hold on a lost node is theirs too: it may be placed elsewhere. `aside` stands outside of what is planned.
    """
    found = dict(limits)
    for tenant, account in over.items():
        if account.is_frozen:
            has, out, limit = held.get(tenant, GpuUsage()), aside.get(tenant, GpuUsage()), found.get(tenant, Limit())
            found[tenant] = Limit(
                _least(limit.gpus, has.gpus - out.gpus),
                _least(limit.price_per_hour, has.price_per_hour - out.price_per_hour),
            )
    return found


def degrade_services(problem: Problem, over: Mapping[str, BudgetAccount]) -> Problem:
    """Services of tenants that are to be degraded: the variant that takes least, and a tenth of the weight."""
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
    least = min(
        service.variants,
        key=lambda variant: gpus_per_rate(problem, replace(service, variants=(variant,)), types),
        default=None,
    )
    variants = service.variants if least is None else (least,)
    return replace(service, variants=variants, priority=max(1, service.priority // LESS_URGENT))


def _least(limit: float | None, has: float) -> float:
    # Shares are sums of floats: a plan that stays as it is must fit.
    has *= 1 + 1e-9
    return has if limit is None else min(limit, has)
