"""Stopped rollouts: a plan is complete once nothing that its rollout left out is needed any more."""

from __future__ import annotations

from typing import Protocol

from app.control.decide.around import FoundAnswer
from app.control.decide.cost_alone import differs_by_cost_alone
from app.control.domain.decision import PlanState
from app.control.domain.events import NewEvent, Reason, event_of
from app.control.domain.snapshot import Snapshot
from app.control.formulate.question import Question


class PlanStates(Protocol):
    """Changes the recorded state of a plan."""

    def change_state(
        self, generation: int, before: PlanState, after: PlanState, message: str, events: list[NewEvent]
    ) -> None: ...


def lacks_nothing(snapshot: Snapshot, question: Question, found: FoundAnswer) -> bool:
    """Returns whether nothing that a stopped rollout left out is needed: another plan would be cheaper at most."""
    if found.decision is None or found.wanted is None or found.searched.nodes != snapshot.nodes:
        return False
    is_failing = any(change.reason == Reason.STEP_FAILED_LATELY for change in found.decision.held_back)
    return not is_failing and differs_by_cost_alone(snapshot, question, found.wanted)


def complete(store: PlanStates, snapshot: Snapshot) -> None:
    """Completes the stopped plan in force."""
    generation, why = snapshot.target, "nothing that its rollout left out is needed any more"
    event = event_of(Reason.ROLLOUT_DONE, why, kind="Plan", name=f"p{generation}", generation=generation)
    store.change_state(generation, PlanState.STOPPED, PlanState.DONE, why, [event])
