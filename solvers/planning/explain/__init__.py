"""Why a service is not served, and the least change, found by solving and checked by applying, that would serve it."""

from __future__ import annotations

from dataclasses import replace

from solvers.planning.explain.applied import case
from solvers.planning.explain.ground import Ground, ground
from solvers.planning.explain.reasons import impossible, reason
from solvers.planning.explain.relaxations import Relaxation, least, relaxations
from solvers.planning.explain.reseat import reseated
from solvers.planning.explain.thin import warnings
from solvers.planning.plan import Plan, Unserved
from solvers.planning.problem import Problem

__all__ = [
    "IN_FULL",
    "NOTHING_HELPS",
    "Relaxation",
    "case",
    "explained",
    "least",
    "reason",
    "relaxations",
    "reseated",
    "warnings",
]

IN_FULL = 20  # a plan
NOTHING_HELPS = "no single change serves it while the others keep their plan"


def explained(problem: Problem, plan: Plan) -> tuple[Unserved, ...]:
    """What is unserved, with reasons: the dearest to miss in full, the rest in short."""

    def missed(one: Unserved) -> tuple[float, str]:
        return (-problem.services[one.service].priority * max(one.rate_per_second, 1.0), one.service)

    full = {one.service for one in sorted(plan.unserved, key=missed)[:IN_FULL]}
    known = ground(problem, plan.instances, plan.jobs)
    return tuple(_told(problem, plan, one, known if one.service in full else None) for one in plan.unserved)


def _told(problem: Problem, plan: Plan, one: Unserved, known: Ground | None) -> Unserved:
    if known is None:
        service = problem.services[one.service]
        return replace(one, reason=impossible(problem, service) or "the others leave no room for it")
    about = case(problem, plan, one.service, known)
    change = least(about)
    words = change.words if change else NOTHING_HELPS
    return replace(one, reason=reason(problem, plan, one.service, about), relaxation=words)
