"""Lets a plan that only saves wait: where the plan in force serves everything, there is time.

Loads move: what a plan saves now may be gone before its hand-overs have paid for themselves, and a batch of a few moves
often saves most of it meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from msgspec.structs import replace as replace_struct

from app.control.decide.assigning import assign_plan
from app.control.decide.batch_drafts import BatchContext
from app.control.decide.cordons import draining_gpus
from app.control.decide.decide import keep_in_force
from app.control.decide.drafting import find_changed_owners
from app.control.decide.least_change import count_handed_over
from app.control.domain.decision import Decision, HeldBackChange
from app.control.domain.desired import Desired
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
