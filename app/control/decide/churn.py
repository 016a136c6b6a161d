"""Holds back a plan that is not worth its churn: hysteresis in cost, not in replicas."""

from __future__ import annotations

from dataclasses import dataclass

from app.control.domain.decision import Decision, HeldBackChange
from app.control.domain.events import Reason
from app.control.domain.snapshot import Snapshot
from app.control.formulate.question import Question
from solvers.planning.judge import Verdict, judge_services
from solvers.planning.plan import Plan
from solvers.planning.problem import Problem
from solvers.planning.search.promise import keep


@dataclass(frozen=True, slots=True)
class PlanValue:
    """The cost of a plan over the horizon, with its churn; None if it breaks a rule."""

    per_horizon: float | None
    churn: float


def value_plan(problem: Problem, plan: Plan, verdict: Verdict | None = None) -> PlanValue:
    """Values the services of a plan by the judge; `verdict` is its verdict on the whole plan, if known."""
    if verdict is None or problem.jobs:
        verdict = judge_services(problem, plan, keep)
    if not verdict.is_right:
        return PlanValue(None, verdict.cost.churn)
    return PlanValue(verdict.cost.value(problem.policy), verdict.cost.churn)


def not_worth_it(snapshot: Snapshot, question: Question, decision: Decision) -> HeldBackChange | None:
    """Returns why the plan in force stays although there is another one; None if the change pays, or is due."""
    changes = decision.plan.changes
    if not snapshot.in_force or not (changes.start or changes.stop or changes.move or changes.resize or changes.retune):
        return None
    before = value_plan(question.problem, question.plan_in_force, question.verdict)
    if before.per_horizon is None or decision.answer.plan is None:
        return None  # the plan in force breaks a rule by now
    after = value_plan(question.problem, decision.answer.plan, decision.verdict)
    if after.per_horizon is not None and after.per_horizon < before.per_horizon - 1e-9 * abs(before.per_horizon):
        return None
    saved = before.per_horizon - (after.per_horizon or 0.0) + after.churn
    return HeldBackChange(
        "",
        Reason.NOT_WORTH_ITS_CHURN,
        f"it would save {saved:.4g} over the horizon; its churn costs {after.churn:.4g}",
    )
