"""Lets a plan that only saves wait: where the plan in force serves everything, there is time.

Loads move: what a plan saves now may be gone before its hand-overs have paid for themselves, and a batch of a few moves
often saves most of it meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from app.control.decide.as_declared import serves_as_declared
from app.control.decide.batch_drafts import BatchContext
from app.control.decide.decide import keep_in_force
from app.control.decide.least_change import count_handed_over
from app.control.domain.decision import Decision, HeldBackChange
from app.control.domain.events import Reason
from app.control.domain.snapshot import Snapshot
from app.control.formulate.question import Question
from solvers.planning.problem import PlacedJob


def wait_with_whole_plan(
    snapshot: Snapshot, question: Question, decision: Decision, wanted: Decision, seconds: float
) -> BatchContext:
    """Returns what batches start from: the decision, or to change nothing if it hands copies over only to save.

    The account of a whole plan goes on while another is wanted, though it may have no order of steps.
    """
    context = BatchContext(snapshot, question, decision, seconds)
    if not differs_by_cost_alone(snapshot, question, decision):
        return replace(context, looks_for_whole=False)
    saved = _saves_by_handovers(question, decision)
    if not saved:
        return replace(context, looks_for_whole=not _saves_by_handovers(question, wanted))
    why = f"a cheaper plan would save {saved:.2f} an hour; it is made once waiting for it has cost as much as it does"
    kept = keep_in_force(snapshot, question, decision, HeldBackChange("", Reason.WAITS_UNTIL_DUE, why))
    return replace(context, decision=kept, whole=decision)


def _saves_by_handovers(question: Question, decision: Decision) -> float:
    """Returns what a plan that hands copies over would save an hour; 0 if it saves nothing, or hands none over."""
    if decision.verdict is None or not count_handed_over(decision.plan.changes):
        return 0.0
    return max(0.0, question.verdict.cost.total - decision.verdict.cost.total)


def differs_by_cost_alone(snapshot: Snapshot, question: Question, decision: Decision) -> bool:
    """Returns whether the plan in force is right and runs the same jobs, perhaps more slowly."""
    same = _names(question.plan_in_force.jobs) == _names(decision.plan.jobs)
    return same and serves_as_declared(snapshot, question)


def _names(jobs: Iterable[PlacedJob]) -> set[str]:
    return {placed.job for placed in jobs}
