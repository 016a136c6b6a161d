"""What happened, gathered: the same that befell many is one line with a few of their names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from app.store.world.events import RecordedEvent

MOST = 25  # lines
NAMED = 3


@dataclass(frozen=True, slots=True)
class EventLine:
    """One reason, whom it befell, and the newest words."""

    at: datetime
    severity: str
    reason: str
    kind: str
    names: tuple[str, ...]  # a few of them
    more: int
    times: int
    message: str


def group_events(events: Sequence[RecordedEvent]) -> list[EventLine]:
    """The newest first, alarms before warnings before news."""
    found: dict[tuple[str, ...], list[RecordedEvent]] = {}
    for one in events:
        found.setdefault((one.severity, one.reason, one.kind), []).append(one)
    lines = [_line(same) for same in found.values()]
    rank = ("alarm", "warning", "info").index
    return sorted(lines, key=lambda line: (rank(line.severity), -line.at.timestamp()))[:MOST]


def _line(same: Sequence[RecordedEvent]) -> EventLine:
    newest = max(same, key=lambda one: (one.last_at, one.id))
    names = dict.fromkeys("/".join(filter(None, (one.tenant, one.name))) for one in same if one.name)
    return EventLine(
        at=newest.last_at,
        severity=newest.severity,
        reason=newest.reason,
        kind=newest.kind,
        names=tuple(names)[:NAMED],
        more=max(0, len(names) - NAMED),
        times=sum(one.times for one in same),
        message=newest.message[:300],
    )
