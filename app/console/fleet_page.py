"""Words the first page: what needs attention, figures, the map with its legend, events. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from app.console.boxes import HUES
from app.console.data import ConsoleData
from app.console.fleet import draw_fleet
from app.console.money import Money
from app.console.page_request import FleetQuery
from app.console.services import count_served, count_states, make_rows
from app.console.trouble import find_troubles
from app.manifests.model import Free
from app.store.world.events import RecordedEvent


def fleet_values(data: ConsoleData, money: Money, query: FleetQuery) -> Free:
    """Returns what `fleet_page.html` shows."""
    rows, fleet = make_rows(data), draw_fleet(data, query)
    shown = next((row for row in rows if row.name == query.service), None)
    return {
        "data": data,
        "query": query,
        "unknown": bool(query.service) and shown is None,
        "troubles": find_troubles(data, rows, fleet),
        "counts": count_states(rows),
        "served": count_served(rows),
        "total": len(rows),
        "fleet": fleet,
        "legend": sorted(rows, key=lambda row: row.name)[:HUES],
        "unlisted": max(0, len(rows) - HUES),
        "has_jobs": bool(data.body["jobs"]),
        "news": group_events(data.events),
        "shown": shown,
        "rate": read_planned_cost(data),
        "money": money,
    }


def read_planned_cost(data: ConsoleData) -> float | None:
    """Returns the cost per hour of the plan in force; for a tenant that of its own services."""
    if not data.tenant:
        certificate = data.body.get("certificate")
        return certificate["resourceCost"] if certificate else None
    prices = [service["pricePerHour"] for service in data.services if service["pricePerHour"] is not None]
    return sum(prices) if prices else None


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
