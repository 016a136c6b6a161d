"""Shifts a plan that has no order of steps: what a few blocked GPUs shall run starts on empty GPUs of the same kind.

In a full GPU each change waits for room that another one holds. On an empty GPU nothing waits, and the full one is
emptied once all of it serves there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from app.control.decide.batch_drafts import take_bound
from app.control.decide.batches import find_blocked_places
from app.control.decide.cordons import draining_gpus
from app.control.decide.decide import judge_changes, write_changes
from app.control.decide.least_change import MOST_HANDOVERS, count_handed_over
from app.control.decide.resting import resting_changes
from app.control.domain.decision import Decision, SolveOutcome
from app.control.domain.ports import BatchMaker
from app.control.domain.snapshot import Snapshot
from app.control.formulate.question import Question
from app.control.rollout.declared_rules import read_rules
from app.control.rollout.ordering.finding import find_blocked
from solvers.planning.batches.batch import BatchGroup, BatchKind
from solvers.planning.problem import Place

MOST_SHIFTED = 32  # GPUs of a plan


def shift(
    snapshot: Snapshot, question: Question, decision: Decision, solver: BatchMaker, *, seconds: float
) -> Decision | None:
    """Returns the decision with what few blocked GPUs shall run on empty ones; None if that gives no order of steps."""
    if not snapshot.in_force or draining_gpus(snapshot.nodes) or resting_changes(snapshot, decision.desired):
        return None
    if count_handed_over(decision.plan.changes) > MOST_HANDOVERS:
        return None
    rules, places, found = read_rules(snapshot.declared), list[Place](), decision
    while waiting := find_blocked(snapshot.assignments, found.desired, rules):
        left = [place for place in find_blocked_places(snapshot, found, waiting) if place not in places]
        places += left[: max(1, len(places))]  # one GPU often frees all others; where it does not, ever more
        if not left or len(places) > MOST_SHIFTED:
            return None
        found = _write(snapshot, question, decision, places, solver, seconds) or decision
    if found is decision:
        return None
    found = judge_changes(question, found)
    return None if found.answer.outcome is SolveOutcome.WRONG else found


def _write(
    snapshot: Snapshot, question: Question, decision: Decision, places: Sequence[Place], solver: BatchMaker,
    seconds: float,
) -> Decision | None:  # fmt: skip
    groups = tuple(BatchGroup((place,), BatchKind.SHIFTED) for place in places)
    answer = solver.make_batches(question.problem, decision.plan, groups, seconds=seconds)
    if answer.plan is None:
        return None
    answer = replace(decision.answer, plan=take_bound(answer.plan, decision.answer.plan, question.problem))
    return write_changes(snapshot, question, answer, decision.lane, decision.reason)
