"""Explains why a service is unserved and finds the least change that would serve it, checked by applying it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from solvers.planning.explain.applied import RelaxedCase, case
from solvers.planning.explain.filled import add_services, fill_unserved
from solvers.planning.explain.fleet import FleetCapacity, fleet
from solvers.planning.explain.ground import Ground, Notes
from solvers.planning.explain.impossible import wanted_profile
from solvers.planning.explain.meter import Meter, SpentError
from solvers.planning.explain.proposals import Relaxation
from solvers.planning.explain.reasons import needed_slo_ms, reason, short
from solvers.planning.explain.relaxations import least_relaxation
from solvers.planning.explain.reseat import reseat
from solvers.planning.explain.thin import warnings
from solvers.planning.explain.worth import dearer
from solvers.planning.fleet.rooms import FleetRooms
from solvers.planning.plan import Plan, Unserved
from solvers.planning.problem import Problem

__all__ = [
    "CUT",
    "FULL_SERVICES",
    "NOTHING_HELPS",
    "STEPS",
    "Relaxation",
    "add_services",
    "case",
    "explain_service",
    "explained",
    "fill_unserved",
    "least_relaxation",
    "reseat",
    "warnings",
]

FULL_SERVICES = 20  # services of a plan with a full explanation
STEPS = 15_000_000  # for all services of a plan: about three quarters of a second
ASSURED_STEPS = 500_000  # for each service, however many the more expensive ones use
NOTHING_HELPS = "no single change serves it while the other services keep their plan"
MORE_WORK = "none needed: a longer search may serve it"
CUT = "the steps for explanations ran out before every change was tried"


@dataclass(frozen=True, slots=True)
class Explained:
    """Why a service is unserved and what would serve it; `is_whole` if every change was tried."""

    reason: str
    relaxation: str
    change: Relaxation | None
    is_whole: bool


def explained(problem: Problem, plan: Plan, steps: int = STEPS, assured: int = ASSURED_STEPS) -> tuple[Unserved, ...]:
    """Adds a reason to each unserved service: a full explanation for the most expensive, a short one for the rest."""

    def by_loss(unserved: Unserved) -> tuple[float, str]:
        service = problem.services[unserved.service]
        loss = service.priority * service.unserved_weight * max(unserved.rate_per_second, 1.0)
        return (-loss, unserved.service)

    dearest = [unserved.service for unserved in sorted(plan.unserved, key=by_loss)[:FULL_SERVICES]]
    known = Ground.of(FleetRooms(problem, plan.instances, plan.jobs))
    kinds = fleet(known.rooms)
    in_full: dict[str, Explained] = {}
    remaining = steps
    for number, name in enumerate(dearest):
        meter = Meter(remaining - assured * (len(dearest) - 1 - number))
        in_full[name] = explain_service(case(problem, plan, name, known, Notes(meter)), kinds)
        remaining -= min(meter.steps, meter.most or 0)

    def with_reason(unserved: Unserved) -> Unserved:
        explanation = in_full.get(unserved.service)
        if explanation:
            return replace(unserved, reason=explanation.reason, relaxation=explanation.relaxation)
        service = problem.services[unserved.service]
        return replace(unserved, reason=short(kinds, service, known.commons))

    return tuple(with_reason(unserved) for unserved in plan.unserved)


def explain_service(about: RelaxedCase, kinds: FleetCapacity) -> Explained:
    """Explains one service in full, within the steps of its meter."""
    try:
        why = reason(about, kinds)
    except SpentError:
        words = short(kinds, about.terms.service, about.rooms.commons)
        return Explained(
            f"{words}; the steps for explanations ran out before every limit was checked", CUT, None, False
        )
    if why.worth:
        change = dearer(about, why.worth) if not why.worth.is_worth_it else None
        return Explained(why.words, change.words if change else MORE_WORK, change, True)
    found = least_relaxation(about)
    if about.problem.policy.unserved_price <= 0 and found.least:
        words = f"an unservedPrice over 0, and {found.least.words}"
    elif found.least:
        words = found.least.words if found.is_whole else f"{found.least.words}; {CUT}: a smaller change may be enough"
    elif not found.is_whole:
        words = f"none found; {CUT}"
    else:
        words = wanted_profile(kinds, about.terms.service) or NOTHING_HELPS
        least_ms = needed_slo_ms(about, kinds) if why.words.startswith("its SLO") else None
        words += f"; in any case, slo.latencyMs must be at least {least_ms:.10g}" if least_ms else ""
    return Explained(why.words, words, found.least, found.is_whole)
