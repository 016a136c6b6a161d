"""The second method: where the joint solver gives no plan, what the running plan leaves unserved is added.

HetSev's greedy starts instances in free room; nothing stops, moves or takes another share. So the addition needs no
order of steps, and the joint solver's next plan starts from it.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from math import fsum
from typing import Protocol

from app.control.decide.decide import write_changes
from app.control.domain.decision import Decision, PlanningLane, SolveOutcome, SolverAnswer
from app.control.domain.snapshot import Snapshot
from app.control.formulate.failed_places import close_failed_places
from app.control.formulate.formulate import formulate
from app.control.formulate.question import Question
from app.control.formulate.running import treat_drains_as_cordons
from app.control.formulate.value import value_plan
from solvers.planning.judge.cost import price_unserved
from solvers.planning.judge.services import AVAILABILITY_RULES, LATE_RULES
from solvers.planning.judge.tolerances import SUM_SHARE
from solvers.planning.plan import Plan
from solvers.planning.problem import Problem

SECONDS = 30.0  # for a process that has to start first
FAILURES = {
    SolveOutcome.OUT_OF_TIME: "was late",
    SolveOutcome.CRASHED: "crashed",
    SolveOutcome.WRONG: "was wrong",
    SolveOutcome.COMPILING: "still compiled its loops",
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
    # What could not leave a draining GPU serves on there: nothing stops here.
    around = close_failed_places(snapshot)
    staying = replace(around, nodes=treat_drains_as_cordons(around.nodes))
    question = formulate(staying)
    if not question.falls_short:
        return None
    answer = solver.add(question.problem, seconds=SECONDS)
    if answer.plan is None:
        return None
    decision = _judge(question, write_changes(staying, question, answer, PlanningLane.FULL, reason))
    if decision is None or decision.desired == snapshot.in_force:
        return None
    message = f"the joint solver {FAILURES[failure]}; HetSev's greedy added what the running plan left unserved"
    return replace(decision, message=message, failure=failure)


def _judge(question: Question, decision: Decision) -> Decision | None:
    """Returns the decision with the judge's verdict; None if it breaks a rule that the plan in force keeps.

    As in a quick step, copies may be nearer to each other than promised to serve more. What breaks its SLO by now is
    not served by the plan in force either, though that plan does not name it as unserved.
    """
    verdict = question.verdict_on(decision.plan)
    known = {(found.where, found.rule) for found in question.verdict.violations}
    for found in verdict.violations:
        if (found.where, found.rule) not in known and found.rule not in AVAILABILITY_RULES:
            return None
    value = value_plan(question.problem, decision.plan, verdict)
    late = {found.owner for found in question.verdict.violations if found.rule in LATE_RULES}
    problem, before = question.problem, question.plan_in_force
    if _price_unserved(problem, decision.plan, late) > _price_unserved(problem, before, late) * (1 + SUM_SHARE):
        return None
    return replace(decision, plan=replace(decision.plan, changes=verdict.changes), verdict=verdict, value=value)


def _price_unserved(problem: Problem, plan: Plan, late: Collection[str]) -> float:
    """Returns what the unserved rates of a plan cost but for these services."""
    return fsum(
        price_unserved(problem.services[entry.service], problem.policy, [entry])
        for entry in plan.unserved
        if entry.service in problem.services and entry.service not in late
    )
