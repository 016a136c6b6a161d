"""Groups events: the same event of many objects is one line with a few of their names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from app.store.world.events import RecordedEvent

MOST_LINES = 25
NAMED_OBJECTS = 3


@dataclass(frozen=True, slots=True)
class EventLine:
    """Events with the same reason: some of their objects, and the newest message."""

    at: datetime
    severity: str
    reason: str
    kind: str
    names: tuple[str, ...]  # a few of them
    more: int
    times: int
    message: str


def group_events(events: Sequence[RecordedEvent]) -> list[EventLine]:
    """Groups events by severity, reason and kind, the newest first. Of too many, information is left out first."""
    found: dict[tuple[str, ...], list[RecordedEvent]] = {}
    for event in events:
        found.setdefault((event.severity, event.reason, event.kind), []).append(event)
    lines = [_line(same) for same in found.values()]
    rank = ("alarm", "warning", "info").index
    kept = sorted(lines, key=lambda line: (rank(line.severity), -line.at.timestamp()))[:MOST_LINES]
    return sorted(kept, key=lambda line: -line.at.timestamp())


def _line(same: Sequence[RecordedEvent]) -> EventLine:
    newest = max(same, key=lambda event: (event.last_at, event.id))
    names = dict.fromkeys("/".join(filter(None, (event.tenant, event.name))) for event in same if event.name)
    return EventLine(
        at=newest.last_at,
        severity=newest.severity,
        reason=newest.reason,
        kind=newest.kind,
        names=tuple(names)[:NAMED_OBJECTS],
        more=max(0, len(names) - NAMED_OBJECTS),
        times=sum(event.times for event in same),
        message=newest.message[:300],
    )
