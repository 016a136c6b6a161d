"""Values plans by the judge, so that they can be weighed against each other."""

from __future__ import annotations

from app.control.domain.decision import PlanValue
from solvers.planning.judge import Verdict, judge_services
from solvers.planning.plan import Plan
from solvers.planning.problem import Problem


def value_plan(problem: Problem, plan: Plan, verdict: Verdict | None = None) -> PlanValue:
    """Values the services of a plan by the judge; `verdict` is its verdict on the whole plan, if known."""
    if verdict is None or problem.jobs:
        from solvers.planning.search.promise import keep  # needs the solvers, which readers of plans may lack

        verdict = judge_services(problem, plan, keep)
    cost = verdict.cost
    return PlanValue(cost.value(problem.policy) if verdict.is_right else None, cost.churn, cost.unserved)
