"""From an answer to a decision: judged again, and written as the assignments of nodes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from operator import attrgetter

from agents.contract.assignments import AssignedInstance
from app.control.decide.assigning import assign_plan
from app.control.domain.decision import Decision, PlanningLane, SolveOutcome, SolverAnswer
from app.control.domain.desired import Desired, NodeDesired
from app.control.domain.snapshot import Snapshot
from app.control.formulate.predict import predict_paces
from app.control.formulate.question import Question
from solvers.planning.judge import JudgedPlan
from solvers.planning.plan import Plan

WEIGHTS = ("rate_per_second", "batch", "args")  # of the batch and the arguments, less than all is compared
_values = attrgetter(*(name for name in AssignedInstance.__struct_fields__ if name not in WEIGHTS))


def write_decision(
    snapshot: Snapshot, question: Question, answer: SolverAnswer, lane: PlanningLane, reason: str
) -> Decision:
    """Writes an answer as a decision that has yet to be judged: a caller may drop it for less than a judgement."""
    assert answer.plan is not None, "an answer without a plan decides nothing"
    plan: Plan = answer.plan
    if any(placed.units_per_second <= 0 for placed in plan.jobs):  # they keep running, perhaps among others
        plan = replace(plan, jobs=predict_paces(plan, JudgedPlan(question.problem, plan).job_residents))
    desired = assign_plan(snapshot, question, plan)
    return Decision(
        lane=lane,
        plan=plan,
        desired=desired,
        answer=answer,
        reason=reason,
        base=snapshot.target,
        services=find_changed_owners(snapshot.in_force, desired),
    )


def judge_decision(question: Question, decision: Decision) -> Decision:
    """Returns the decision with the judge's verdict; its outcome is WRONG if that refuses the plan."""
    answer, verdict = decision.answer, question.verdict_on(decision.plan)
    if not verdict.is_right:
        wrong = "; ".join(str(violation) for violation in verdict.violations[:3])
        answer = replace(answer, outcome=SolveOutcome.WRONG, message=f"the judge refuses the plan: {wrong}")
    return replace(decision, plan=replace(decision.plan, changes=verdict.changes), answer=answer, verdict=verdict)


def find_changed_owners(before: Desired, after: Desired) -> tuple[str, ...]:
    """Returns the services and jobs whose assignment changes, apart from weights."""
    found: set[str] = set()
    for node in {*before, *after}:
        old, new = _lines(before.get(node)), _lines(after.get(node))
        if old != new:
            was, now = {line.id: line for line in old}, {line.id: line for line in new}
            gone = [line for line in old if now.get(line.id) != line]
            come = [line for line in new if was.get(line.id) != line]
            found |= {name for name, _ in _weightless_lines(gone) ^ _weightless_lines(come)}
    return tuple(sorted(found))


def _lines(wanted: NodeDesired | None) -> tuple[AssignedInstance, ...]:
    return wanted.instances if wanted else ()


def _weightless_lines(lines: Iterable[AssignedInstance]) -> set[tuple[str, object]]:
    return {(line.owner, _weightless(line)) for line in lines}


def _weightless(instance: AssignedInstance) -> tuple[object, ...]:
    arguments = sorted(instance.args.items()) if instance.args else ()
    return (*_values(instance), instance.batch.planned if instance.batch else 0, *arguments)
