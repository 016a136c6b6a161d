"""Records an event for every change that a person makes; the audit log holds who made it, before and after."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from sqlalchemy import Connection

from app.control.domain.events import NewEvent, Reason, Severity, event_of
from app.store.world import events
from app.world.decisions import Action, ObjectDecision

MOST_NAMED = 20  # of one request; of more changes only their numbers
REASONS = {
    Action.CREATED: Reason.OBJECT_CREATED,
    Action.UPDATED: Reason.OBJECT_CHANGED,
    Action.DELETED: Reason.OBJECT_DELETED,
}


def record_changes(
    connection: Connection, decisions: Sequence[ObjectDecision], *, dry_run: bool, forced: bool = False
) -> None:
    """Records what a request changed; a large request is one event for each kind and tenant."""
    if dry_run:
        return
    changed = [decision for decision in decisions if decision.action in REASONS]
    if len(changed) <= MOST_NAMED:
        events.record(connection, [_name_change(decision, forced) for decision in changed])
        return
    counts = Counter((decision.action, decision.key.kind, decision.key.tenant) for decision in changed)
    events.record(
        connection,
        [
            event_of(REASONS[action], _spell_count(count, kind, action), kind=str(kind), tenant=tenant)
            for (action, kind, tenant), count in sorted(counts.items())
        ],
    )


def _spell_count(count: int, kind: str, action: str) -> str:
    return f"1 object of kind {kind} was {action}" if count == 1 else f"{count} objects of kind {kind} were {action}"


def _name_change(decision: ObjectDecision, forced: bool) -> NewEvent:
    key = decision.key
    message = f"{key} was {'deleted by force' if forced else decision.action}"
    severity: Severity | None = "warning" if forced else None
    return event_of(
        REASONS[decision.action], message, kind=str(key.kind), tenant=key.tenant, name=key.name, severity=severity
    )
