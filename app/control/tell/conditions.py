"""Conditions of services and tenants, derived from the plan in force and the reasons of the last answer. Pure.

A message holds no figure that follows the load: every change of a message is written and sent to watchers.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from app.control.domain.desired import CopyCounts
from app.control.domain.events import Reason
from app.control.formulate.tenants import BudgetAccount, GpuUsage, TenantTerms
from app.control.tell.degrade.degradation import Degraded
from app.manifests.model import Key, Kind
from solvers.planning.plan import Plan, Unserved
from solvers.planning.problem import Limit, Problem, Service

TRUE, FALSE, UNKNOWN = "True", "False", "Unknown"
MOST_CHARACTERS = 500  # of a message


@dataclass(frozen=True, slots=True)
class Statement:
    """A condition of an object, and the reason that its event would have."""

    type: str
    status: str
    why: Reason
    message: str

    @property
    def reason(self) -> str:
        return self.why.camel


@dataclass(frozen=True)
class CycleFacts:
    """Everything that conditions depend on, at the end of a cycle; reasons come from the last answer."""

    problem: Problem
    plan: Plan
    reasons: Mapping[str, Unserved] = field(default_factory=dict)  # by service
    attained: Mapping[str, float] = field(default_factory=dict)  # by service: share of requests answered in time
    degraded: Mapping[str, Degraded] = field(default_factory=dict)  # by service
    terms: Mapping[str, TenantTerms] = field(default_factory=dict)  # by tenant, as are the next three
    accounts: Mapping[str, BudgetAccount] = field(default_factory=dict)
    limits: Mapping[str, Limit] = field(default_factory=dict)  # entitled
    used: Mapping[str, GpuUsage] = field(default_factory=dict)
    mode: str = "auto"
    is_held: bool = False  # plans wait for approval since a rollback, whatever the policy's mode
    currency: str = ""  # of all prices; empty: unknown
    copies: Mapping[str, CopyCounts] = field(default_factory=dict)  # by service


def make_statements(facts: CycleFacts) -> dict[Key, tuple[Statement, ...]]:
    """Returns the conditions of every service and tenant; each type occurs once."""
    found: dict[Key, tuple[Statement, ...]] = {}
    carried: dict[str, float] = defaultdict(float)
    for instance in facts.plan.instances:
        carried[instance.service] += instance.rate_per_second
    short = {unserved.service: unserved for unserved in facts.plan.unserved}
    for name, service in facts.problem.services.items():
        key = Key(Kind.SERVICE, *name.split("/", 1))
        found[key] = describe_service(facts, service, carried[name], short.get(name))
    for tenant in facts.terms:
        found[Key(Kind.TENANT, "", tenant)] = describe_tenant(facts, tenant)
    return found


def describe_service(
    facts: CycleFacts, service: Service, carried: float, unserved: Unserved | None
) -> tuple[Statement, ...]:  # fmt: skip
    """Returns Planned, Running, SloAttained, Degraded, and WithinBudget where the tenant has a budget."""
    name = service.name
    found = [describe_planned(service, carried, unserved, facts.reasons.get(name), _why_not_auto(facts))]
    if name in facts.copies:
        found.append(describe_running(facts.copies[name]))
    found.append(describe_attained(service, facts.attained.get(name)))
    degraded = facts.degraded.get(name)
    found.append(
        Statement("Degraded", TRUE, degraded.reason, degraded.message)
        if degraded
        else Statement("Degraded", FALSE, Reason.ALL_PLANNED, "the service has the capacity that it needs")
    )
    account = facts.accounts.get(service.tenant)
    if account:
        found.append(describe_budget(service.tenant, account, facts.currency))
    return tuple(found)


def _why_not_auto(facts: CycleFacts) -> str:
    """Returns why plans are not carried out at once; empty if they are."""
    if facts.mode == "auto":
        return ""
    is_by_rollback = facts.is_held and facts.mode == "approve"
    return "plans wait for approval since a rollback" if is_by_rollback else f"the mode is {facts.mode}"


def describe_planned(
    service: Service, carried: float, unserved: Unserved | None, why: Unserved | None, not_auto: str
) -> Statement:  # fmt: skip
    """Describes whether the plan carries the whole rate; if not, why, and the least change that would help."""
    rate = service.rate_per_second
    if unserved is None:
        return Statement("Planned", TRUE, Reason.ALL_PLANNED, f"the plan carries all {rate:.4g} requests a second")
    message = f"the plan carries {carried:.4g} of {rate:.4g} requests a second"
    message += f"; {unserved.rate_per_second:.4g} are unserved"
    known = why or unserved
    if known.reason:
        message += f": {known.reason}"
    if known.relaxation:
        message += f"; least change that helps: {known.relaxation}"
    if not_auto:
        message += f"; {not_auto}"
    return Statement("Planned", FALSE, Reason.UNSERVED, message[:MOST_CHARACTERS])


def describe_running(copies: CopyCounts) -> Statement:
    """Describes whether what is planned runs and gets requests; if not, why."""
    if copies.routed >= copies.planned > 0:
        return Statement("Running", TRUE, Reason.ALL_ROUTED, "all planned copies are routed")
    if not copies.planned:
        return Statement("Running", UNKNOWN, Reason.UNSERVED, "no copy is planned")
    if not copies.why:
        status = TRUE if copies.routed else UNKNOWN
        return Statement("Running", status, Reason.COPIES_STARTING, "copies start, or wait for their routes")
    why = Reason.SERVICE_SUSPECT if copies.is_suspect else Reason.COPIES_MISSING
    message = f"{copies.routed} of {copies.planned} planned copies are routed; {copies.why}"
    if copies.is_suspect:
        message += "; it fails wherever it is started, so it stays"
    return Statement("Running", FALSE, why, message[:MOST_CHARACTERS])


def describe_attained(service: Service, share: float | None) -> Statement:
    """Describes whether as many requests are answered in time as the SLO asks for."""
    pace = f" to the first token and {service.tokens.promise.tpot_ms:g} ms a token" if service.tokens else ""
    slo = f"{service.percentile:g} % within {service.slo_ms:g} ms{pace}"
    if share is None:
        return Statement("SloAttained", UNKNOWN, Reason.SLO_ATTAINED, f"no requests lately; the SLO is {slo}")
    if 100 * share >= service.percentile:
        return Statement("SloAttained", TRUE, Reason.SLO_ATTAINED, f"the service keeps its SLO, {slo}")
    # The share itself changes all the time; metrics and the API show it.
    late = "late or too slow" if service.tokens else "late"
    return Statement("SloAttained", FALSE, Reason.SLO_MISSED, f"too many requests are {late}; the SLO is {slo}")


def describe_budget(tenant: str, account: BudgetAccount, currency: str) -> Statement:
    """Describes whether the tenant keeps its budget, and what follows if not."""
    amount = f"{account.per_month:.12g} {currency}".strip()
    budget = f"the budget of {amount} a month"
    if account.is_over:
        consequence = {
            "alarm": "its services are not affected",
            "freeze": "its services keep what they have and get no more",
            "degrade": "its services run as cheaply as they may, and yield to those of other tenants",
        }[account.over_budget]
        return Statement("WithinBudget", FALSE, Reason.OVER_BUDGET, f"{tenant} has spent {budget}; {consequence}")
    if account.is_near:
        message = f"at the current rate {tenant} will spend {budget} before the month ends"
        return Statement("WithinBudget", TRUE, Reason.NEAR_BUDGET, message)
    return Statement("WithinBudget", TRUE, Reason.WITHIN_BUDGET, f"{tenant} is within {budget}")


def describe_tenant(facts: CycleFacts, tenant: str) -> tuple[Statement, ...]:
    """Returns WithinBudget where there is a budget, and whether the tenant gets its entitlement or borrows."""
    terms, limit = facts.terms[tenant], facts.limits.get(tenant, Limit())
    gpus = facts.used.get(tenant, GpuUsage()).gpus
    account = facts.accounts.get(tenant)
    found = [describe_budget(tenant, account, facts.currency)] if account else []
    is_cut = limit.gpus is not None and (terms.limit.gpus is None or limit.gpus < terms.limit.gpus * (1 - 1e-6))
    if is_cut:
        message = f"GPUs are short: the tenant is entitled to {limit.gpus:.3g} GPUs now"
        found.append(Statement("Entitled", FALSE, Reason.RECLAIMED, message))
    elif terms.guarantee_gpus and gpus > terms.guarantee_gpus * (1 + 1e-6):
        message = f"beyond its guarantee of {terms.guarantee_gpus:g} GPUs the tenant borrows what others leave idle"
        found.append(Statement("Entitled", TRUE, Reason.BORROWING, message))
    else:
        found.append(
            Statement("Entitled", TRUE, Reason.ALL_PLANNED, "the tenant may use what it needs, within its limit")
        )
    return tuple(found)
