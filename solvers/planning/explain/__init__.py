"""Why a service is not served, and the least change, found by solving and checked by applying, that would serve it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from solvers.planning.explain.applied import RelaxedCase, case
from solvers.planning.explain.filled import fill_unserved
from solvers.planning.explain.fleet import FleetCapacity, fleet
from solvers.planning.explain.free_capacity import ground
from solvers.planning.explain.impossible import wanted_profile
from solvers.planning.explain.meter import Meter, SpentError
from solvers.planning.explain.options import Notes
from solvers.planning.explain.proposals import Relaxation
from solvers.planning.explain.reasons import needed_slo_ms, reason, short
from solvers.planning.explain.relaxations import least_relaxation
from solvers.planning.explain.reseat import reseat
from solvers.planning.explain.thin import warnings
from solvers.planning.explain.worth import dearer
from solvers.planning.plan import Plan, Unserved
from solvers.planning.problem import Problem

__all__ = [
    "CUT",
    "IN_FULL",
    "NOTHING_HELPS",
    "STEPS",
    "Relaxation",
    "case",
    "explained",
    "fill_unserved",
    "least_relaxation",
    "reseat",
    "told",
    "warnings",
]

IN_FULL = 20  # a plan
STEPS = 15_000_000  # for all of them together: about three quarters of a second
ASSURED = 500_000  # for each, whatever dearer ones spend
NOTHING_HELPS = "no single change serves it while the others keep their plan"
MORE_WORK = "none is needed: more work may serve it"
CUT = "not every change was tried, as the steps for reasons were spent"


@dataclass(frozen=True, slots=True)
class Explained:
    """The reason of one service, what would serve it, and whether all was looked at for it."""

    reason: str
    relaxation: str
    change: Relaxation | None
    is_whole: bool


def explained(problem: Problem, plan: Plan, steps: int = STEPS, assured: int = ASSURED) -> tuple[Unserved, ...]:
    """What is unserved, with reasons: the dearest to miss in full, the rest in short."""

    def missed(one: Unserved) -> tuple[float, str]:
        return (-problem.services[one.service].priority * max(one.rate_per_second, 1.0), one.service)

    dearest = [one.service for one in sorted(plan.unserved, key=missed)[:IN_FULL]]
    known = ground(problem, plan.instances, plan.jobs)
    kinds = fleet(problem, known.at)
    notes = Notes()
    in_full: dict[str, Explained] = {}
    left = steps
    for number, name in enumerate(dearest):
        meter = Meter(left - assured * (len(dearest) - 1 - number))
        in_full[name] = told(case(problem, plan, name, known, Notes(meter, notes.measured)), kinds)
        left -= min(meter.steps, meter.most or 0)

    def one(left: Unserved) -> Unserved:
        said = in_full.get(left.service)
        if said:
            return replace(left, reason=said.reason, relaxation=said.relaxation)
        service = problem.services[left.service]
        return replace(left, reason=short(kinds, service, known, notes.measured))

    return tuple(one(left) for left in plan.unserved)


def told(about: RelaxedCase, kinds: FleetCapacity) -> Explained:
    """All of one service, within the steps of its meter."""
    try:
        why = reason(about, kinds)
    except SpentError:
        words = short(kinds, about.terms.service, about.whole, about.notes.measured)
        return Explained(
            f"{words}; the steps for reasons were spent before every limit was looked at", CUT, None, False
        )
    if why.worth:
        change = dearer(about, why.worth) if not why.worth.is_worth_it else None
        return Explained(why.words, change.words if change else MORE_WORK, change, True)
    found = least_relaxation(about)
    if about.problem.policy.unserved_price <= 0 and found.least:
        words = f"unservedPrice over 0, and {found.least.words}"
    elif found.least:
        words = found.least.words if found.is_whole else f"{found.least.words}; {CUT}: less may do"
    elif not found.is_whole:
        words = f"none found; {CUT}"
    else:
        words = wanted_profile(kinds, about.terms.service) or NOTHING_HELPS
        least_ms = needed_slo_ms(about, kinds) if why.words.startswith("its SLO") else None
        words += f"; slo.latencyMs of {least_ms:.10g} at least is needed in any case" if least_ms else ""
    return Explained(why.words, words, found.least, found.is_whole)
