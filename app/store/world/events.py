"""Events, each at most once an hour: repetitions are counted, and the newest message is stored.

An event that happens again gets a new id, so that lists by id begin with what happened last. A later page then shows
none of an earlier one again; what happens meanwhile is on the first page.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from typing import Literal

import msgspec
from sqlalchemy import Connection, TextClause

from app.manifests.model import Free
from app.store.database.database import statement

MOST_EVENTS = 1_000_000  # without a tenant; of these the newest are kept
MOST_SEARCHED = 100_000  # of the newest events, for a text
MOST_TENANT_EVENTS = 100_000  # of each tenant, so that no tenant displaces the events of another

Severity = Literal["info", "warning", "alarm"]

RECORD = statement(
    "record_events",
    """
    WITH happened AS (
        SELECT decode(fingerprint, 'hex') AS fingerprint, times, reason, severity, kind, tenant, name, message,
            generation
        FROM jsonb_to_recordset(CAST(:events AS jsonb)) AS happened (
            fingerprint text, times int, reason text, severity text, kind text, tenant text, name text, message text,
            generation bigint)
    ), known AS (
        SELECT DISTINCT ON (fingerprint) fingerprint, at FROM event JOIN happened USING (fingerprint)
        WHERE at > moment() - interval '1 hour' ORDER BY fingerprint, at DESC
    ), again AS (
        UPDATE event SET id = DEFAULT, last_at = greatest(event.last_at, moment()),
            times = event.times + happened.times, message = happened.message,
            generation = coalesce(happened.generation, event.generation)
        FROM known JOIN happened USING (fingerprint)
        WHERE event.fingerprint = known.fingerprint AND event.at = known.at  -- which no other writer changes
    )
    INSERT INTO event (at, last_at, times, reason, severity, kind, tenant, name, message, generation, fingerprint)
    SELECT moment(), moment(), times, reason, severity, kind, tenant, name, message, generation, fingerprint
    FROM happened WHERE fingerprint NOT IN (SELECT fingerprint FROM known)
    """,
)
_RECENT = """
    SELECT id, at, last_at, times, reason, severity, kind, tenant, name, message, generation FROM event
    WHERE true {conditions}
    ORDER BY id DESC LIMIT :limit
"""
_CONDITIONS = {
    "before": "AND id < :before",
    "kind": "AND kind = :kind",
    "tenant": "AND tenant = :tenant",
    "name": "AND name = :name",
    "reasons": "AND reason = ANY(CAST(:reasons AS text[]))",
    "severities": "AND severity = ANY(CAST(:severities AS text[]))",
    "since": "AND last_at >= CAST(:since AS timestamptz)",
    "generation": "AND generation = :generation",
    # Words can be found by reading only; the newest events are enough to read. Each repetition of an event leaves a gap
    # among the ids, so rows are counted.
    "text": f"""
        AND id > coalesce((SELECT id FROM event ORDER BY id DESC OFFSET {MOST_SEARCHED} LIMIT 1), 0)
        AND position(:text IN lower(
            concat_ws(' ', kind, tenant || '/' || name, replace(reason, '_', ' '), message))) > 0
    """,
}
PRUNE = statement(
    "prune_events",
    """
    DELETE FROM event WHERE id IN (
        SELECT id FROM event WHERE last_at < moment() - CAST(:days AS float8) * interval '1 day'
        ORDER BY last_at LIMIT :limit)
    """,
)
PRUNE_MOST = statement(
    "prune_most_events",
    """
    WITH RECURSIVE found (tenant) AS (
        (SELECT tenant FROM event ORDER BY tenant LIMIT 1)
        UNION ALL
        SELECT (SELECT event.tenant FROM event WHERE event.tenant > found.tenant ORDER BY event.tenant LIMIT 1)
        FROM found WHERE found.tenant IS NOT NULL
    )
    DELETE FROM event WHERE id IN (
        SELECT old.id FROM found CROSS JOIN LATERAL (
            SELECT id FROM event WHERE event.tenant = found.tenant ORDER BY id DESC
            OFFSET CASE WHEN found.tenant = '' THEN :most ELSE :most_of_tenant END) AS old
        LIMIT :limit)
    """,
)


@dataclass(frozen=True, slots=True)
class NewEvent:
    """Something that happened to an object. `about` distinguishes events of the same reason and subject."""

    reason: str
    severity: Severity
    message: str
    kind: str = ""  # Service, Job, Node, Tenant, Plan, ...
    tenant: str = ""
    name: str = ""
    generation: int | None = None  # of the plan that caused it
    about: str = ""  # an instance, a GPU

    @property
    def fingerprint(self) -> str:
        """Returns the same hash for the same event; the message, with its numbers, is not part of it."""
        identity = "\0".join((self.reason, self.severity, self.kind, self.tenant, self.name, self.about))
        return sha256(identity.encode()).digest()[:16].hex()


@dataclass(frozen=True, slots=True)
class RecordedEvent:
    """An event as it is stored."""

    id: int
    at: datetime
    last_at: datetime
    times: int
    reason: str
    severity: Severity
    kind: str
    tenant: str
    name: str
    message: str
    generation: int | None


@dataclass(frozen=True, slots=True)
class EventFilter:
    """A filter of events; a field with its default value excludes nothing."""

    before: int | None = None  # older than this id: the next page
    kind: str = ""
    tenant: str = ""
    name: str = ""
    reasons: Sequence[str] = ()
    severities: Sequence[str] = ()
    since: datetime | None = None
    generation: int | None = None
    text: str = ""  # in small letters: part of a name, a reason or a message


def record(connection: Connection, events: Sequence[NewEvent]) -> None:
    """Records events; one that happened before in the last hour is counted there."""
    rows: dict[str, Free] = {}
    for event in events:
        row = rows.setdefault(event.fingerprint, {"fingerprint": event.fingerprint, "times": 0})
        row |= {
            "times": row["times"] + 1, "reason": event.reason, "severity": event.severity, "kind": event.kind,
            "tenant": event.tenant, "name": event.name, "message": event.message, "generation": event.generation,
        }  # fmt: skip
    if rows:
        connection.execute(RECORD, {"events": msgspec.json.encode(list(rows.values())).decode()})


def recent(connection: Connection, wanted: EventFilter = EventFilter(), limit: int = 100) -> list[RecordedEvent]:
    """Returns the events that the filter lets through, the last first."""
    conditions = {name: value for name in _CONDITIONS if (value := getattr(wanted, name))}
    rows = connection.execute(recent_statement(conditions), {**conditions, "limit": limit})
    return [RecordedEvent(*row) for row in rows]


def recent_statement(conditions: Mapping[str, object]) -> TextClause:
    """Returns the list statement with only the conditions it needs."""
    wheres = " ".join(sql for name, sql in _CONDITIONS.items() if name in conditions)
    return statement("recent_events", _RECENT.format(conditions=wheres))


def prune(connection: Connection, days: float, limit: int) -> int:
    """Deletes up to `limit` events that last happened so many days ago; returns how many."""
    old = connection.execute(PRUNE, {"days": days, "limit": limit}).rowcount
    most = {"most": MOST_EVENTS, "most_of_tenant": MOST_TENANT_EVENTS, "limit": limit}
    return old + connection.execute(PRUNE_MOST, most).rowcount
