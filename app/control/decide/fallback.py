"""The second method: where the joint solver gives no plan, or none that steps lead to, what is unserved is added.

HetSev's greedy starts instances in free room; nothing stops, moves or takes another share. So the addition needs no
order of steps, and the joint solver's next plan starts from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Protocol

from app.control.decide.around import AROUND_KEY, FoundAnswer, lacks_of, serves_as_much, serves_more
from app.control.decide.choosing import FEW_AT_ONCE, can_wait
from app.control.decide.decide import write_changes
from app.control.decide.least_change import handed_over
from app.control.domain.decision import AT_ONCE_KEY, Decision, PlanningLane, SolveOutcome, SolverAnswer
from app.control.domain.snapshot import Snapshot
from app.control.formulate.failed_places import close_again, close_failed_places, closed_places
from app.control.formulate.formulate import formulate
from app.control.formulate.question import Question
from app.control.formulate.running import without_drains
from app.control.formulate.value import value_plan
from app.control.rollout import has_order
from app.control.rollout.rules_of import rules_of
from app.manifests.model import JSON
from solvers.planning.judge import judge
from solvers.planning.judge.services import AVAILABILITY_RULES
from solvers.planning.problem import Problem
from solvers.planning.search.promise import keep

SECONDS = 30.0  # for a process that has to start first
FAILURES = {
    SolveOutcome.OUT_OF_TIME: "was late",
    SolveOutcome.CRASHED: "crashed",
    SolveOutcome.WRONG: "was wrong",
}


class AddingSolver(Protocol):
    """Adds what a running plan leaves unserved."""

    def add(self, problem: Problem, *, seconds: float) -> SolverAnswer: ...


def draft_fallback(
    snapshot: Snapshot, failure: SolveOutcome, solver: AddingSolver, reason: str
) -> Decision | None:  # fmt: skip
    """Returns the plan in force with what it leaves unserved; None if nothing is missing or nothing can be added."""
    if failure not in FAILURES:
        return None
    return _added(snapshot, solver, reason, f"the joint solver {FAILURES[failure]}")


def answer_by_adding(
    snapshot: Snapshot, question: Question, found: FoundAnswer, solver: AddingSolver, reason: str
) -> FoundAnswer:  # fmt: skip
    """Returns the answer; an addition instead, where load would wait for hand-overs although GPUs have room.

    The plan that serves more often gives copies each other's places, and then no order of steps leads there, or a long
    one. What is added serves as soon as it has started, and what such a plan saves is waited for.
    """
    decision, wanted = found.decision, found.wanted
    if decision is None or wanted is None or not question.falls_short:
        return found
    lacks = lacks_of(snapshot, question, decision)
    is_blocked = serves_more(lacks_of(snapshot, question, wanted), lacks)
    if not is_blocked and handed_over(decision.plan.changes) <= FEW_AT_ONCE:
        return found
    why = "no order of steps leads" if is_blocked else "only many hand-overs lead"
    added = _added(snapshot, solver, reason, f"{why} to the plan that serves more")
    if added is None or not has_order(snapshot.assignments, added.desired, rules_of(snapshot.declared)):
        return found
    others = lacks_of(snapshot, question, added)
    if not (serves_more(others, lacks) or (serves_as_much(others, lacks) and can_wait(question, added, decision))):
        return found
    recipe = {**added.answer.recipe, AT_ONCE_KEY: True}
    return replace(found, decision=replace(added, answer=replace(added.answer, recipe=recipe)))


def _added(snapshot: Snapshot, solver: AddingSolver, reason: str, why: str) -> Decision | None:
    around = close_failed_places(snapshot)
    decision = _drafted(snapshot, around, solver, reason)
    if decision is None:
        return None
    recipe: dict[str, JSON] = dict(decision.answer.recipe)
    if closed := closed_places(around):
        recipe[AROUND_KEY] = closed
    message = f"{why}; HetSev's greedy added what the running plan left unserved"
    return replace(decision, message=message, answer=replace(decision.answer, recipe=recipe))


def fallback_again(
    snapshot: Snapshot, recipe: Mapping[str, JSON], solver: AddingSolver, reason: str
) -> Decision | None:  # fmt: skip
    """Drafts the recorded addition again."""
    closed = recipe.get(AROUND_KEY)
    around = close_again(snapshot, closed if isinstance(closed, Mapping) else {})
    return _drafted(snapshot, around, solver, reason)


def _drafted(snapshot: Snapshot, around: Snapshot, solver: AddingSolver, reason: str) -> Decision | None:
    # What could not leave a draining GPU serves on there: nothing stops here.
    staying = replace(around, nodes=without_drains(around.nodes))
    question = formulate(staying)
    if not question.falls_short:
        return None
    answer = solver.add(question.problem, seconds=SECONDS)
    if answer.plan is None:
        return None
    decision = _judged(question, write_changes(staying, question, answer, PlanningLane.FULL, reason))
    if decision is None or decision.desired == snapshot.in_force:
        return None
    return decision


def _judged(question: Question, decision: Decision) -> Decision | None:
    """Returns the decision with the judge's verdict; None if it breaks a rule that the plan in force keeps.

    As in a quick step, copies may be nearer to each other than promised to serve more.
    """
    verdict = judge(question.problem, decision.plan, simulate=False, keeps=keep)
    known = {(found.where, found.rule) for found in question.verdict.violations}
    for found in verdict.violations:
        if (found.where, found.rule) not in known and found.rule not in AVAILABILITY_RULES:
            return None
    value = value_plan(question.problem, decision.plan, verdict)
    if value.unserved > question.value_in_force.unserved:
        return None
    return replace(decision, plan=replace(decision.plan, changes=verdict.changes), verdict=verdict, value=value)
