"""The audit log: each act with its author and the state before and after; rows are never rewritten."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TypedDict

import msgspec
from sqlalchemy import Connection, TextClause

from app.manifests.model import Free
from app.store.database.database import read_dicts, statement


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """One act of a principal on an object."""

    request_id: str
    principal: str
    scope: str
    principal_tenant: str
    verb: str
    outcome: str  # done, refused, alarm
    kind: str
    tenant: str = ""
    name: str = ""
    detail: str = ""
    before: Free | None = None
    after: Free | None = None


class AuditRow(TypedDict):
    """An entry as it is stored."""

    id: int
    at: datetime
    request_id: str
    principal: str
    scope: str
    principal_tenant: str
    verb: str
    outcome: str
    kind: str
    tenant: str
    name: str
    detail: str
    before: Free | None
    after: Free | None


INSERT = statement(
    "insert_audit",
    """
    INSERT INTO audit (request_id, principal, scope, principal_tenant, verb, outcome,
                       kind, tenant, name, detail, before, after)
    SELECT request_id, principal, scope, principal_tenant, verb, outcome,
           kind, tenant, name, detail, before, after
    FROM jsonb_to_recordset(CAST(:rows AS jsonb)) AS r (
        request_id text, principal text, scope text, principal_tenant text, verb text, outcome text,
        kind text, tenant text, name text, detail text, before jsonb, after jsonb)
    """,
)
FORGET = statement(
    "forget_audit",
    """
    DELETE FROM audit WHERE id IN (
        SELECT id FROM (SELECT id, at FROM audit ORDER BY id LIMIT :limit) AS oldest
        WHERE at < now() - make_interval(secs => :seconds))
    """,
)
# What the product, agents and nodes that join do are no acts of people. `at` is of the clock on the wall, also where
# moment() is simulated.
LAST_ACT = statement(
    "last_act_on_the_fleet",
    """
    SELECT verb, kind, name, principal, detail
    FROM (SELECT id, at, verb, outcome, kind, name, principal, scope, detail
          FROM audit ORDER BY id DESC LIMIT 1000) AS newest
    WHERE at > clock_timestamp() - CAST(:within AS interval) AND outcome = 'done' AND kind = ANY(CAST(:kinds AS text[]))
      AND scope IN ('operator', 'admin') AND principal NOT IN ('planner', 'housekeeping')
      AND principal NOT LIKE 'join:%' AND principal NOT LIKE 'kubernetes:%'
    ORDER BY id DESC LIMIT 1
    """,
)
_COLUMNS = """id, at, request_id, principal, scope, principal_tenant, verb, outcome,
           kind, tenant, name, detail, before, after"""
GET = statement("get_audit_entry", f"SELECT {_COLUMNS} FROM audit WHERE id = :id")
_PAGE = f"""
    SELECT {_COLUMNS}
    FROM audit WHERE id < :before {{conditions}} ORDER BY id DESC LIMIT :limit
"""
_CONDITIONS = {
    "kind": "AND kind = :kind",
    "tenant": "AND tenant = :tenant",
    "name": "AND name = :name",
    "principal": "AND principal = :principal",
    "verb": "AND verb = :verb",
    "outcome": "AND outcome = :outcome",
    "since": "AND at >= CAST(:since AS timestamptz)",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditFilter:
    """A filter of entries; an empty field excludes nothing."""

    kind: str = ""
    tenant: str = ""
    name: str = ""
    principal: str = ""
    verb: str = ""
    outcome: str = ""
    since: datetime | None = None


def record(connection: Connection, entries: Sequence[AuditEntry]) -> None:
    if entries:
        connection.execute(INSERT, {"rows": msgspec.json.encode(entries).decode()})


def page(connection: Connection, before: int, limit: int, wanted: AuditFilter = AuditFilter()) -> list[AuditRow]:
    """Returns the newest entries older than `before`, newest first."""
    chosen = {name: value for name in _CONDITIONS if (value := getattr(wanted, name))}
    given = {**chosen, "before": before, "limit": limit}
    return read_dicts(AuditRow, connection.execute(page_statement(chosen), given))


def describe_last_act(connection: Connection, kinds: Sequence[str], within: timedelta) -> str:
    """Returns what a person did to objects of these kinds last, and who; empty if nobody did anything so lately."""
    row = connection.execute(LAST_ACT, {"kinds": list(kinds), "within": within}).one_or_none()
    if row is None:
        return ""
    what = f"{row.verb} {row.name if row.name == 'fleet' else f'{row.kind.lower()} {row.name}'}"
    return f"{row.principal} asked for it: {what}{f' ({row.detail})' if row.detail else ''}"


def get(connection: Connection, entry_id: int) -> AuditRow | None:
    """Returns the entry of this number; None where there is none."""
    return next(iter(read_dicts(AuditRow, connection.execute(GET, {"id": entry_id}))), None)


def page_statement(chosen: Mapping[str, object]) -> TextClause:
    """Returns the list statement with only the conditions that it needs."""
    conditions = " ".join(sql for name, sql in _CONDITIONS.items() if name in chosen)
    return statement("page_of_audit", _PAGE.format(conditions=conditions))


def forget(connection: Connection, older_than_seconds: float, limit: int) -> int:
    """Deletes up to `limit` old entries; returns how many. The database refuses to delete younger ones."""
    return connection.execute(FORGET, {"seconds": older_than_seconds, "limit": limit}).rowcount
