"""Deliveries of events to webhooks: one row for each event and hook, until it has arrived or is given up.

A trigger writes the rows in the transaction of the event, so none is lost and none is of an event that was rolled back.
It fires for new events only: what happens again within the hour is counted, and not sent again. For hooks of the audit
another trigger writes rows that name an entry, until that has arrived: the audit is kept longer than any outage.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime

import msgspec
from sqlalchemy import Connection

from app.manifests.model import Free
from app.store.database.database import read_row, statement

LEASE_SECONDS = 60.0  # after which a delivery whose server has died is tried by another
FORGOTTEN_SECONDS = 600.0  # a hook that no server has in its file for so long is gone, and so are its deliveries
FORGOTTEN_AUDIT_DAYS = 14  # one of the audit: servers may be away for longer than they may lose entries
DEAD_DAYS = 14
LATEST_DAYS = 89  # of an entry of the audit, which may be deleted a day later
MOST_WAITING = 10_000  # of a hook; of more the oldest are given up
_COLUMNS = "id, hook, attempts, event"

REGISTER = statement(
    "register_webhooks",
    """
    INSERT INTO webhook (name, audit, severities, reasons, tenants, seen_at)
    SELECT name, audit, severities, reasons, tenants, now()
    FROM jsonb_to_recordset(CAST(:hooks AS jsonb))
        AS hook (name text, audit boolean, severities text[], reasons text[], tenants text[])
    ON CONFLICT (name) DO UPDATE SET audit = EXCLUDED.audit, severities = EXCLUDED.severities,
        reasons = EXCLUDED.reasons, tenants = EXCLUDED.tenants, seen_at = now()
    """,
)
CLAIM = statement(
    "claim_delivery",
    f"""
    UPDATE webhook_delivery SET attempts = attempts + 1, due_at = now() + make_interval(secs => {LEASE_SECONDS})
    WHERE id = (
        SELECT id FROM webhook_delivery WHERE hook = :hook AND due_at <= now()
        ORDER BY due_at, id LIMIT 1 FOR UPDATE SKIP LOCKED)
    RETURNING {_COLUMNS}, CAST(extract(epoch FROM now() - created_at) AS float8) AS age_seconds
    """,
)
DONE = statement(
    "note_delivered",
    """
    WITH gone AS (DELETE FROM webhook_delivery WHERE id = :id AND attempts = :attempts RETURNING hook)
    UPDATE webhook SET sent = sent + 1, sent_at = now(), error = '' FROM gone WHERE name = gone.hook
    """,
)
FAILED = statement(
    "note_not_delivered",
    """
    WITH tried AS (
        UPDATE webhook_delivery SET error = :error,
            due_at = CASE
            WHEN :dead AND (NOT event ? 'audit' OR EXISTS (
                SELECT FROM webhook
                WHERE name = hook AND sent_at > now() - make_interval(secs => CAST(:seconds AS float8))))
            THEN NULL ELSE now() + make_interval(secs => CAST(:seconds AS float8)) END
        WHERE id = :id AND attempts = :attempts RETURNING hook)
    UPDATE webhook SET error = :error FROM tried WHERE name = tried.hook
    """,
)
STANDING = statement(
    "standing_of_webhooks",
    """
    SELECT name, sent, sent_at, error,
        (SELECT count(*) FROM webhook_delivery WHERE hook = name AND due_at IS NOT NULL) AS waiting,
        (SELECT count(*) FROM webhook_delivery WHERE hook = name AND due_at IS NULL) AS dead
    FROM webhook ORDER BY name
    """,
)
DEAD = statement(
    "dead_letters",
    f"""
    SELECT {_COLUMNS}, error, created_at FROM webhook_delivery
    WHERE hook = :hook AND due_at IS NULL ORDER BY id DESC LIMIT :limit
    """,
)
DISCARD = statement(
    "discard_dead_letters",
    """
    DELETE FROM webhook_delivery
    WHERE hook = :hook AND due_at IS NULL AND (CAST(:ids AS bigint[]) IS NULL OR id = ANY (:ids))
    RETURNING id, event
    """,
)
RETRY = statement(
    "retry_dead_letters",
    "UPDATE webhook_delivery SET due_at = now(), attempts = 0 WHERE hook = :hook AND due_at IS NULL",
)
TRY = statement(
    "try_webhook",
    """
    INSERT INTO webhook_delivery (hook, event, due_at)
    SELECT name, CAST(:event AS jsonb), now() FROM webhook WHERE name = :hook RETURNING id
    """,
)
GIVE_UP = statement(
    "give_up_deliveries",
    f"""
    UPDATE webhook_delivery SET due_at = NULL, error = 'too many were waiting' WHERE id IN (
        SELECT id FROM (
            SELECT id, row_number() OVER (PARTITION BY hook ORDER BY id DESC) AS place
            FROM webhook_delivery WHERE due_at IS NOT NULL AND NOT event ? 'audit') AS waiting
        WHERE place > {MOST_WAITING} LIMIT :limit)
    """,
)
FORGET = statement(
    "forget_deliveries",
    f"""
    DELETE FROM webhook_delivery WHERE id IN (
        SELECT id FROM webhook_delivery WHERE created_at < now() - interval '{DEAD_DAYS} days'
            AND (due_at IS NULL AND NOT event ? 'audit' OR created_at < now() - interval '{LATEST_DAYS} days')
        LIMIT :limit)
    """,
)
_FORGOTTEN = f"""seen_at < now() - CASE WHEN audit
        THEN interval '{FORGOTTEN_AUDIT_DAYS} days' ELSE make_interval(secs => {FORGOTTEN_SECONDS}) END"""
EMPTY_HOOKS = statement(
    "empty_forgotten_webhooks",
    f"""
    DELETE FROM webhook_delivery WHERE id IN (
        SELECT id FROM webhook_delivery WHERE hook IN (SELECT name FROM webhook WHERE {_FORGOTTEN}) LIMIT :limit)
    """,
)
FORGET_HOOKS = statement(
    "forget_webhooks",
    f"""
    DELETE FROM webhook WHERE {_FORGOTTEN} AND NOT EXISTS (SELECT FROM webhook_delivery WHERE hook = name)
    """,
)


@dataclass(frozen=True, slots=True)
class HookFilter:
    """Which events a hook wants; an empty list wants all. Or it wants the audit, and no events."""

    name: str
    audit: bool
    severities: Sequence[str]
    reasons: Sequence[str]
    tenants: Sequence[str]


@dataclass(frozen=True, slots=True)
class Delivery:
    """An event, or the number of an entry of the audit, that a hook shall get; `attempts` counts this one."""

    id: int
    hook: str
    attempts: int
    event: Free
    age_seconds: float


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """An event, or the number of an entry of the audit, that a hook did not get."""

    id: int
    hook: str
    attempts: int
    event: Free
    error: str
    created_at: datetime


@dataclass(frozen=True, slots=True)
class HookStanding:
    """How a hook does."""

    name: str
    sent: int
    sent_at: datetime | None
    error: str  # of the last try, if that failed
    waiting: int
    dead: int


def register(connection: Connection, hooks: Sequence[HookFilter]) -> None:
    """Says that these hooks are there; those that no server says this of are forgotten."""
    connection.execute(REGISTER, {"hooks": msgspec.json.encode([asdict(hook) for hook in hooks]).decode()})


def claim(connection: Connection, hook: str) -> Delivery | None:
    """Returns the hook's next delivery that is due; no other server gets it meanwhile."""
    return read_row(Delivery, connection.execute(CLAIM, {"hook": hook}))


def note_delivered(connection: Connection, delivery: Delivery) -> None:
    connection.execute(DONE, {"id": delivery.id, "attempts": delivery.attempts})


def note_failed(connection: Connection, delivery: Delivery, error: str, pause_seconds: float, is_dead: bool) -> None:
    """Notes a try that failed; the next one comes after the pause, or never.

    An entry of the audit is tried again in any case while its place takes no other: the fault may be the place's.
    """
    values = {"id": delivery.id, "attempts": delivery.attempts, "error": error}
    connection.execute(FAILED, {**values, "dead": is_dead, "seconds": pause_seconds})


def read_standing(connection: Connection) -> list[HookStanding]:
    return [HookStanding(*row) for row in connection.execute(STANDING)]


def read_dead(connection: Connection, hook: str, limit: int = 100) -> list[DeadLetter]:
    """Returns what the hook did not get, the last first."""
    return [DeadLetter(*row) for row in connection.execute(DEAD, {"hook": hook, "limit": limit})]


def retry_dead(connection: Connection, hook: str) -> int:
    """Lets the hook's dead letters be tried again; returns how many."""
    return connection.execute(RETRY, {"hook": hook}).rowcount


def discard_dead(connection: Connection, hook: str, ids: Sequence[int] | None) -> dict[int, Free]:
    """Deletes these dead letters of the hook, None for all of them; returns what they were, by id."""
    return dict(sorted((row.id, row.event) for row in connection.execute(DISCARD, {"hook": hook, "ids": ids})))


def try_hook(connection: Connection, hook: str, event: Free) -> bool:
    """Sends an event to one hook alone; False if there is no such hook."""
    values = {"hook": hook, "event": msgspec.json.encode(event).decode()}
    return connection.execute(TRY, values).one_or_none() is not None


def tidy(connection: Connection, limit: int) -> int:
    """Gives up what is too much, and deletes what is too old; returns how many rows."""
    found = sum(connection.execute(step, {"limit": limit}).rowcount for step in (EMPTY_HOOKS, GIVE_UP, FORGET))
    connection.execute(FORGET_HOOKS)
    return found
