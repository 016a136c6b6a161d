"""Certificates of plans as JSON: what a plan costs, the bound, and what plans of other planners cost and serve."""

from __future__ import annotations

from typing import NotRequired, TypedDict

from solvers.planning.plan import Certificate, Cost, OtherPlan, PriorityShortfall
from solvers.planning.plan_fields import PlanFields


class OtherPlanWire(TypedDict):
    """What another planner's plan of the same problem costs and serves; without costs it breaks the rules named."""

    planner: str
    resourceCost: float | None
    unservedCost: float | None
    churnCost: float | None
    servedShare: float
    refused: str
    ageSeconds: float


class PriorityShortfallWire(TypedDict):
    """What a plan leaves unserved of a priority and all above, and what every plan leaves of them at least."""

    priority: int
    ratePerSecond: float
    unservedPerSecond: float
    boundPerSecond: float | None


class PlanCertificateWire(TypedDict):
    """The judged cost of a plan, and the bound below which no plan can be."""

    cost: float
    resourceCost: float
    unservedCost: float
    jobCost: float
    churnCost: float
    bound: float | None
    gap: float | None
    boundAgeSeconds: float | None
    noBoundReason: str
    method: str
    work: int
    seconds: float
    otherPlanners: NotRequired[list[OtherPlanWire]]
    programme: NotRequired[float | None]
    shortfalls: NotRequired[list[PriorityShortfallWire]]


def certificate_out(certificate: Certificate) -> PlanCertificateWire:
    """Writes a certificate."""
    cost, gap = certificate.cost, certificate.gap
    return {
        "cost": cost.total,
        "resourceCost": cost.resource,
        "unservedCost": cost.unserved,
        "jobCost": cost.job,
        "churnCost": cost.churn,
        "bound": certificate.bound,
        "gap": None if gap is None else round(gap, 6),
        "boundAgeSeconds": None if certificate.bound is None else certificate.bound_age_seconds,
        "noBoundReason": certificate.no_bound_reason,
        "method": certificate.method,
        "work": certificate.work,
        "seconds": certificate.seconds,
        "otherPlanners": others_out(certificate),
        "programme": certificate.programme,
        "shortfalls": [_shortfall_out(shortfall) for shortfall in certificate.shortfalls],
    }


def others_out(certificate: Certificate) -> list[OtherPlanWire]:
    """Writes what plans of other planners cost and serve."""
    return [_other_out(other) for other in certificate.others]


def others_in(rows: object) -> tuple[OtherPlan, ...]:
    """Reads what `others_out` wrote."""
    return PlanFields("", {"otherPlanners": rows}, []).each("otherPlanners", _other_in)


def _shortfall_out(shortfall: PriorityShortfall) -> PriorityShortfallWire:
    return {
        "priority": shortfall.priority,
        "ratePerSecond": shortfall.rate_per_second,
        "unservedPerSecond": shortfall.unserved_per_second,
        "boundPerSecond": shortfall.bound_per_second,
    }


def _other_out(other: OtherPlan) -> OtherPlanWire:
    cost = other.cost
    return {
        "planner": other.planner,
        "resourceCost": cost.resource if cost else None,
        "unservedCost": cost.unserved if cost else None,
        "churnCost": cost.churn if cost else None,
        "servedShare": other.served_share,
        "refused": other.refused,
        "ageSeconds": other.age_seconds,
    }


def certificate_in(whole: PlanFields) -> Certificate | None:
    """Reads the certificate of a plan, if it has one."""
    if whole.values.get("certificate") is None:
        return None
    fields = whole.inner("certificate")
    cost = Cost(
        fields.number("resourceCost", 0.0),
        fields.number("unservedCost", 0.0),
        fields.number("jobCost", 0.0),
        fields.number("churnCost", 0.0),
    )
    bound = None if fields.values.get("bound") is None else fields.number("bound")
    work, seconds = fields.number("work", 0), fields.number("seconds", 0.0)
    age_seconds, reason = fields.number("boundAgeSeconds", 0.0), fields.text("noBoundReason", "")
    others = fields.each("otherPlanners", _other_in)
    programme = None if fields.values.get("programme") is None else fields.number("programme")
    method, shortfalls = fields.text("method", ""), fields.each("shortfalls", _shortfall_in)
    return Certificate(cost, bound, method, work, seconds, age_seconds, reason, others, programme, shortfalls)


def _shortfall_in(fields: PlanFields) -> PriorityShortfall:
    bound = None if fields.values.get("boundPerSecond") is None else fields.number("boundPerSecond")
    asked, unserved = fields.number("ratePerSecond"), fields.number("unservedPerSecond")
    return PriorityShortfall(fields.number("priority"), asked, unserved, bound)


def _other_in(fields: PlanFields) -> OtherPlan:
    cost = None
    if fields.values.get("resourceCost") is not None:
        parts = (fields.number(name, 0.0) for name in ("resourceCost", "unservedCost", "churnCost"))
        cost = Cost(next(parts), next(parts), churn=next(parts))
    share, age_seconds = fields.number("servedShare", 0.0), fields.number("ageSeconds", 0.0)
    return OtherPlan(fields.text("planner"), cost, share, fields.text("refused", ""), age_seconds)
