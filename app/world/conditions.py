"""Conditions in the status of objects, with the time since which they hold."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Protocol

from app.store.world.objects import StoredObject, WrittenCondition, rfc3339


class ConditionFields(Protocol):
    """The fields of a condition."""

    @property
    def type(self) -> str: ...
    @property
    def status(self) -> str: ...  # True, False, Unknown
    @property
    def reason(self) -> str: ...
    @property
    def message(self) -> str: ...


@dataclass(frozen=True, slots=True)
class ObjectCondition:
    """A plain condition."""

    type: str
    status: str
    reason: str
    message: str


def set_condition(stored: StoredObject, found: ConditionFields, now: datetime) -> StoredObject:
    """Returns the object with this condition, or the object itself if it has the condition already."""
    known = next((c for c in stored.conditions if c["type"] == found.type), None)
    since = known["lastTransitionTime"] if known and known["status"] == found.status else rfc3339(now)
    fresh: WrittenCondition = {
        "type": found.type,
        "status": found.status,
        "reason": found.reason,
        "message": found.message,
        "lastTransitionTime": since,
        "observedGeneration": stored.generation,
    }
    if fresh == known:
        return stored
    others = [c for c in stored.conditions if c["type"] != found.type]
    return replace(stored, status={**stored.status, "conditions": [*others, fresh]}, updated_at=now)
