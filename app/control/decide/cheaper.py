"""Brings what runs closer to a cheaper plan: waits until it is due, steps aside for it, or adds batches of moves."""

from __future__ import annotations

from dataclasses import replace

from app.control.decide.batch_drafts import BatchContext
from app.control.decide.batches import add_due_batches
from app.control.decide.goal import wait_for_goal
from app.control.decide.sidestep import find_sidestep
from app.control.domain.decision import Decision
from app.control.domain.ports import PlanSolver
from app.control.domain.regret import RegretAccounts


def come_closer(
    context: BatchContext, wanted: Decision, regrets: RegretAccounts, solver: PlanSolver, *, is_brief: bool
) -> tuple[Decision, RegretAccounts]:
    """Waits until a cheaper plan is due; adds a sidestep towards it, or batches that are due."""
    snapshot, question = context.snapshot, context.question
    decision, regrets = wait_for_goal(snapshot, question, context.decision, wanted, regrets, is_brief=is_brief)
    context = replace(context, decision=decision)
    if question.falls_short or regrets.goal.is_due:
        if regrets.may_step_aside(snapshot.at) and (found := find_sidestep(context, wanted, solver)):
            return found, regrets.stepped_aside(snapshot.at)
        regrets = regrets.goal_refused()
    return add_due_batches(context, regrets, solver)
