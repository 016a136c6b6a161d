"""Holds a cheaper plan back until waiting for it has cost as much as its churn.

Loads move: what a plan saves now may be gone before its hand-overs have paid for themselves. Where the plan in force
serves everything there is time to wait, and a batch of a few moves often saves most of it meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from app.control.decide.decide import keep_in_force
from app.control.decide.least_change import handed_over
from app.control.decide.regret import RegretAccounts
from app.control.domain.decision import Decision, HeldBackChange
from app.control.domain.events import Reason
from app.control.domain.snapshot import Snapshot
from app.control.formulate.question import Question

RECIPE_KEY = "waits"  # of an answer that was found and not made


def wait_for_goal(
    snapshot: Snapshot, question: Question, decision: Decision, wanted: Decision, regrets: RegretAccounts
) -> tuple[Decision, RegretAccounts]:
    """Returns the decision, or one to change nothing while its goal is not due, and the account of the goal.

    The goal is what the decision makes; where that is nothing, the plan that was wanted and has no order of steps.
    """
    if not snapshot.in_force or question.falls_short or _starts_jobs(question, decision):
        return decision, regrets
    goal = decision if decision.desired != snapshot.in_force else wanted
    saved = question.verdict.cost.total - goal.verdict.cost.total if goal.verdict else 0.0
    if saved <= 0 or goal.value is None or not handed_over(goal.plan.changes):
        return decision, regrets.without_goal()
    regrets = regrets.towards(snapshot.at, saved, goal.value.churn)
    if goal is not decision:
        return decision, regrets
    if regrets.goal.is_due:
        return decision, regrets.without_goal()
    why = f"it would save {saved:.4g} an hour; waiting has cost {regrets.goal.regret:.4g} of {regrets.goal.churn:.4g}"
    return _kept(snapshot, question, decision, why), regrets


def kept_again(snapshot: Snapshot, question: Question, decision: Decision, recipe: Mapping[str, Any]) -> Decision:
    """Returns the decision to change nothing where the recipe says so, else the decision."""
    return _kept(snapshot, question, decision, "") if recipe.get(RECIPE_KEY) else decision


def _starts_jobs(question: Question, decision: Decision) -> bool:
    """Returns whether a job starts, which need not wait for what services could save."""
    running = {placed.job for placed in question.plan_in_force.jobs}
    return not running.issuperset(placed.job for placed in decision.plan.jobs)


def _kept(snapshot: Snapshot, question: Question, decision: Decision, why: str) -> Decision:
    answer = replace(decision.answer, recipe={**decision.answer.recipe, RECIPE_KEY: True})
    held = HeldBackChange("", Reason.NOT_WORTH_ITS_CHURN, why)
    return keep_in_force(snapshot, question, replace(decision, answer=answer), held)
