"""Has other planners asked about a problem, and takes the best of their plans where the search finds no cheaper one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from solvers.planning.drafting.drafts import AskRivals, SeatedRival
from solvers.planning.finish import explained, sound_bound
from solvers.planning.parts import Division
from solvers.planning.plan import Certificate, Plan
from solvers.planning.planner_draft import AskOthers, RivalPlan
from solvers.planning.problem import Problem

SAME_SHARE = 1e-6  # of a cost: a plan that is cheaper by less is no better


def rivals_of(problem: Problem, division: Division | None, others: AskOthers | None) -> AskRivals | None:
    """Returns how a search of this problem, or of its parts, asks other planners."""
    if others is None:
        return None

    def ask(quick: bool) -> list[SeatedRival]:
        found = []
        for rival in others(problem, quick=quick):
            lines = rival.plan.instances if rival.plan else ()
            found.append(SeatedRival(rival, division.split_instances(lines) if division else lines))
        return found

    return ask


def cheaper_rival(problem: Problem, plan: Plan, rivals: Iterable[RivalPlan]) -> RivalPlan | None:
    """Returns the best of these plans if it costs less than `plan`, all counted; of equal ones none."""
    best = least_rival(problem, rivals)
    assert plan.certificate
    own = plan.certificate.cost.value_with_jobs(problem.policy)
    return best if best and _value_of(problem, best) < own - SAME_SHARE * max(1.0, own) else None


def least_rival(problem: Problem, rivals: Iterable[RivalPlan]) -> RivalPlan | None:
    """Returns the plan of another planner that costs least, all counted; None if no plan keeps every rule."""
    return min((each for each in rivals if each.plan), key=lambda each: _value_of(problem, each), default=None)


def _value_of(problem: Problem, rival: RivalPlan) -> float:
    assert rival.about.cost
    return rival.about.cost.value_with_jobs(problem.policy)


def finish_rival(problem: Problem, rival: RivalPlan, known: float | None, notes: str) -> Plan:
    """Returns the plan of another planner, which the judge has accepted, with reasons and a certificate."""
    plan, cost = rival.plan, rival.about.cost
    assert plan
    assert cost
    bound, note = sound_bound(known, cost.total)
    return replace(
        plan,
        unserved=explained(problem, plan),
        certificate=Certificate(cost, bound, f"the plan of {rival.about.planner}{notes}{note}", 0, 0.0),
    )
