"""Words a recorded decision: its events, and the changes that it holds back."""

from __future__ import annotations

from collections.abc import Sequence

from app.control.domain.decision import Decision, HeldBackChange, PlanState
from app.control.domain.events import NewEvent, Reason, event_of
from solvers.planning.plan_fields import CHANGE_VERBS, spell_changes

MOST_SPELLED = 5  # held-back changes, in a message


def spell_held_back(held: Sequence[HeldBackChange]) -> str:
    """Returns the first changes that are held back, in words."""
    first = held[:MOST_SPELLED]
    return "; ".join(f"{change.service}: {change.message}" if change.service else change.message for change in first)


def events_of(decision: Decision, parts: Sequence[Decision]) -> list[NewEvent]:
    """Returns the events of a decision and its parts."""
    changes = decision.plan.changes
    message = spell_changes({name: getattr(changes, name) for name in CHANGE_VERBS})
    message = message or "only the shares of requests change"
    planned = event_of(Reason.PLANNED, message, kind="Plan")
    if decision.answer.is_addition:
        planned = event_of(Reason.FALLBACK_PLANNED, f"{decision.message}: {message}", kind="Plan")
    if any(part.state is PlanState.PROPOSED for part in parts):
        return [planned, event_of(Reason.PLAN_PROPOSED, kind="Plan")]
    return [planned]
