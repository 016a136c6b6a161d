"""What the planner says of services and tenants in their status: pure, from the plan that stands and its reasons.

A message changes when what it says changes, not with every breath of the load: each change is written, and watched.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from app.control.domain.events import Reason
from app.control.formulate.tenants import BudgetAccount, GpuUsage, TenantTerms
from app.control.tell.degrade import Degraded
from app.manifests.model import Key, Kind
from solvers.planning.plan import Plan, Unserved
from solvers.planning.problem import Limit, Problem, Service

TRUE, FALSE, UNKNOWN = "True", "False", "Unknown"
LONGEST = 500  # characters of a message


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement about an object, as its status carries it."""

    type: str
    status: str
    why: Reason
    message: str

    @property
    def reason(self) -> str:
        return self.why.camel


@dataclass(frozen=True)
class CycleFacts:
    """What is known when a cycle is over. Plan and problem are in the same words; reasons come from the last answer."""

    problem: Problem
    plan: Plan
    reasons: Mapping[str, Unserved] = field(default_factory=dict)  # by service
    attained: Mapping[str, float] = field(default_factory=dict)  # by service: share of requests in time
    degraded: Mapping[str, Degraded] = field(default_factory=dict)  # by service
    terms: Mapping[str, TenantTerms] = field(default_factory=dict)  # by tenant, and so the others
    accounts: Mapping[str, BudgetAccount] = field(default_factory=dict)
    limits: Mapping[str, Limit] = field(default_factory=dict)  # entitled
    used: Mapping[str, GpuUsage] = field(default_factory=dict)
    mode: str = "auto"
    currency: str = ""  # of all prices; empty: it is not known


def make_statements(ground: CycleFacts) -> dict[Key, tuple[Statement, ...]]:
    """By object; every statement has its type once."""
    found: dict[Key, tuple[Statement, ...]] = {}
    carried: dict[str, float] = {}
    for one in ground.plan.instances:
        carried[one.service] = carried.get(one.service, 0.0) + one.rate_per_second
    short = {one.service: one for one in ground.plan.unserved}
    for name, service in ground.problem.services.items():
        tenant, label = name.split("/", 1)
        found[Key(Kind.SERVICE, tenant, label)] = describe_service(
            ground, service, carried.get(name, 0.0), short.get(name)
        )  # fmt: skip
    for tenant in ground.terms:
        found[Key(Kind.TENANT, "", tenant)] = describe_tenant(ground, tenant)
    return found


def describe_service(
    ground: CycleFacts, service: Service, carried: float, left: Unserved | None
) -> tuple[Statement, ...]:  # fmt: skip
    """Served, SloAttained, Degraded, and WithinBudget where its tenant has a budget."""
    name = service.name
    found = [describe_served(service, carried, left, ground.reasons.get(name), ground.mode)]
    found.append(describe_attained(service, ground.attained.get(name)))
    worse = ground.degraded.get(name)
    found.append(
        Statement("Degraded", TRUE, worse.reason, worse.message)
        if worse
        else Statement("Degraded", FALSE, Reason.SERVED, "it has what it asks for")
    )
    account = ground.accounts.get(service.tenant)
    if account:
        found.append(describe_budget(service.tenant, account, ground.currency))
    return tuple(found)


def describe_served(
    service: Service, carried: float, left: Unserved | None, why: Unserved | None, mode: str
) -> Statement:
    """Whether the plan carries the whole rate; if not, why, and the least change that would help."""
    asked = service.rate_per_second
    if left is None:
        return Statement("Served", TRUE, Reason.SERVED, f"the plan carries {asked:.4g} requests a second")
    told = f"the plan carries {carried:.4g} of {asked:.4g} requests a second, {left.rate_per_second:.4g} are unserved"
    known = why or left
    if known.reason:
        told += f": {known.reason}"
    if known.relaxation:
        told += f"; what would serve it: {known.relaxation}"
    if mode != "auto":
        told += f"; the mode is {mode}"
    return Statement("Served", FALSE, Reason.UNSERVED, told[:LONGEST])


def describe_attained(service: Service, share: float | None) -> Statement:
    """Whether so many requests are answered in time as the SLO says."""
    promised = f"{service.percentile:g} % within {service.slo_ms:g} ms"
    if share is None:
        return Statement("SloAttained", UNKNOWN, Reason.SLO_ATTAINED, f"nothing was asked lately; promised: {promised}")
    if 100 * share >= service.percentile:
        return Statement("SloAttained", TRUE, Reason.SLO_ATTAINED, f"as promised: {promised}")
    # Without the share itself: it breathes, and would be written for ever. Metrics and the API have it.
    return Statement("SloAttained", FALSE, Reason.SLO_MISSED, f"fewer are in time than promised: {promised}")


def describe_budget(tenant: str, account: BudgetAccount, currency: str) -> Statement:
    """How the tenant stands with its budget, and what follows."""
    amount = f"{account.per_month:.12g} {currency}".strip()
    budget = f"the budget of {amount} a month"
    if account.is_over:
        follows = {
            "alarm": "this is only said",
            "freeze": "its services get nothing more than they have",
            "degrade": "its services run as cheaply as they may, and give way to others",
        }[account.over_budget]
        return Statement("WithinBudget", FALSE, Reason.OVER_BUDGET, f"{tenant} has spent {budget}; {follows}")
    if account.is_near:
        return Statement(
            "WithinBudget", TRUE, Reason.NEAR_BUDGET, f"at this pace {tenant} spends {budget} before it ends"
        )
    return Statement("WithinBudget", TRUE, Reason.WITHIN_BUDGET, f"{tenant} is within {budget}")


def describe_tenant(ground: CycleFacts, tenant: str) -> tuple[Statement, ...]:
    """WithinBudget where there is one, and whether it gets what it asks for or has borrowed."""
    terms, limit = ground.terms[tenant], ground.limits.get(tenant, Limit())
    gpus = ground.used.get(tenant, GpuUsage()).gpus
    account = ground.accounts.get(tenant)
    found = [describe_budget(tenant, account, ground.currency)] if account else []
    is_cut = limit.gpus is not None and (terms.limit.gpus is None or limit.gpus < terms.limit.gpus * (1 - 1e-6))
    if is_cut:
        told = f"there is not enough for all: it is entitled to {limit.gpus:.3g} GPUs now"
        found.append(Statement("Entitled", FALSE, Reason.RECLAIMED, told))
    elif terms.guarantee_gpus and gpus > terms.guarantee_gpus * (1 + 1e-6):
        told = f"it uses more than its guarantee of {terms.guarantee_gpus:g} GPUs, of what others leave idle"
        found.append(Statement("Entitled", TRUE, Reason.BORROWING, told))
    else:
        found.append(Statement("Entitled", TRUE, Reason.SERVED, "it may have what it asks for, within its limit"))
    return tuple(found)
