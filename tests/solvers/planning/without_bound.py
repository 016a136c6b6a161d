"""Plans as the joint planner does, but without its bound, which takes most of the time: for tests that need a plan."""

from __future__ import annotations

from dataclasses import replace

from solvers.planning.drafting.drafts import drafts, prepare
from solvers.planning.finish import finish_plan
from solvers.planning.parts import divide_services
from solvers.planning.plan import Plan
from solvers.planning.problem import Problem
from solvers.planning.search.tables import tables


def plan_without_bound(problem: Problem, work: int, seed: int = 0) -> Plan:
    """Returns the cheapest plan that so much work finds."""
    division = divide_services(problem)
    t = tables(division.problem if division else problem)
    made = drafts(prepare(t), seed)
    best = next(made)
    is_begun = best.ends_the_beginning
    for draft in made:
        if is_begun and draft.work > work:
            break
        is_begun = is_begun or draft.ends_the_beginning
        if draft.cost < best.cost:
            best = draft
    plan = finish_plan(t, best, None, best.method, division)
    assert plan.certificate
    return replace(plan, certificate=replace(plan.certificate, work=best.work))
