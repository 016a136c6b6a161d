"""Holds a cheaper plan back until waiting for it has cost as much as its churn.

Loads move: what a plan saves now may be gone before its hand-overs have paid for themselves. Where the plan in force
serves everything there is time to wait, and a batch of a few moves often saves most of it meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from msgspec.structs import replace as replace_struct

from app.control.decide.assigning import assign_plan
from app.control.decide.cordons import draining_gpus
from app.control.decide.decide import keep_in_force
from app.control.decide.drafting import find_changed_owners
from app.control.decide.effort import effort
from app.control.decide.least_change import count_handed_over
from app.control.domain.decision import Decision, HeldBackChange
from app.control.domain.desired import Desired
from app.control.domain.events import Reason
from app.control.domain.regret import RegretAccounts
from app.control.domain.snapshot import Snapshot
from app.control.formulate.question import Question
from solvers.planning.problem import PlacedJob


def wait_for_goal(
    snapshot: Snapshot,
    question: Question,
    decision: Decision,
    wanted: Decision,
    regrets: RegretAccounts,
    *,
    is_brief: bool,
) -> tuple[Decision, RegretAccounts]:
    """Returns the decision, or one to change nothing while its goal is not due, and the account of the goal.

    The goal is the plan of the decision if that hands anything over, else the wanted plan, which may have no order of
    steps. What is needed for another reason than cost does not wait. A brief search looks for no goal, so that the
    account of the last one goes on.
    """
    if is_brief:
        return decision, regrets.goal_waited(snapshot.at)
    if not _may_wait(snapshot, question, decision):
        is_goal = decision.desired != snapshot.in_force and not decision.answer.is_least_change
        return decision, regrets.goal_made() if is_goal else regrets
    changes_little = decision.desired == snapshot.in_force or not count_handed_over(decision.plan.changes)
    aim = wanted if changes_little else decision
    if aim.verdict is None or aim.value is None:
        return decision, regrets
    saved = question.verdict.cost.total - aim.verdict.cost.total
    price = aim.value.churn + effort(question, aim.plan.changes)
    rate = saved if count_handed_over(aim.plan.changes) else 0.0
    regrets = regrets.towards(snapshot.at, rate, price, question.verdict.cost.resource, is_possible=not changes_little)
    if changes_little or saved <= 0:
        return decision, regrets
    if regrets.goal.is_due:
        return decision, regrets.goal_made()
    waited = f"{max(0.0, regrets.goal.regret):.2f} of {price:.2f} so far"
    due = f"it is made once waiting for it has cost as much as its hand-overs: {waited}"
    why = f"a cheaper plan would save {saved:.2f} an hour; {due}"
    return keep_in_force(snapshot, question, decision, HeldBackChange("", Reason.WAITS_UNTIL_DUE, why)), regrets


def differs_by_cost_alone(snapshot: Snapshot, question: Question, decision: Decision) -> bool:
    """Returns whether the plan in force is as right as the decision, so that cost is all that it changes."""
    same = _seats(question.plan_in_force.jobs) == _seats(decision.plan.jobs)
    return same and _serves_as_declared(snapshot, question)


def _may_wait(snapshot: Snapshot, question: Question, decision: Decision) -> bool:
    """Returns whether the plan in force is right and runs the same jobs, perhaps more slowly."""
    same = _names(question.plan_in_force.jobs) == _names(decision.plan.jobs)
    return same and _serves_as_declared(snapshot, question)


def _serves_as_declared(snapshot: Snapshot, question: Question) -> bool:
    if not snapshot.in_force or question.falls_short or draining_gpus(snapshot.nodes):
        return False
    as_declared = assign_plan(snapshot, question, question.plan_in_force)
    return not find_changed_owners(snapshot.in_force, _keep_urgency(as_declared, snapshot.in_force))


def _keep_urgency(desired: Desired, before: Desired) -> Desired:
    """Returns the assignments with jobs as urgent as before: that grows with time, and asks for no other plan."""
    urgency = {line.id: line.priority for wanted in before.values() for line in wanted.instances if line.job}
    return {
        node: replace(
            wanted,
            instances=tuple(
                replace_struct(line, priority=urgency[line.id]) if line.id in urgency else line
                for line in wanted.instances
            ),
        )
        for node, wanted in desired.items()
    }


def _names(jobs: Iterable[PlacedJob]) -> set[str]:
    return {placed.job for placed in jobs}


def _seats(jobs: Iterable[PlacedJob]) -> set[tuple[object, ...]]:
    return {(placed.job, placed.places, placed.sm_percent, placed.memory_gib) for placed in jobs}
