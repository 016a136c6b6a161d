"""Prices the changes of a plan that only saves, beside their churn."""

from __future__ import annotations

from app.control.formulate.question import Question
from solvers.planning.plan import Changes
from solvers.planning.replan.effort import change_price


def effort(question: Question, changes: Changes) -> float:
    """Returns what the starts, moves and resizes must be worth beside their churn."""
    policy, instances = question.problem.policy, question.plan_in_force.instances
    return changes.made * change_price(policy.move_price, question.verdict.cost.resource, len(instances))
