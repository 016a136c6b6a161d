"""The audit log: each act with its author and the state before and after; rows are never rewritten."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from sqlalchemy import Connection

from app.store.database.database import statement


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
    before: dict[str, Any] | None = None
    after: dict[str, Any] | None = None


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
PAGE = statement(
    "page_of_audit",
    """
    SELECT id, at, request_id, principal, scope, principal_tenant, verb, outcome,
           kind, tenant, name, detail, before, after
    FROM audit WHERE id < :before ORDER BY id DESC LIMIT :limit
    """,
)


def record(connection: Connection, entries: Sequence[AuditEntry]) -> None:
    if entries:
        connection.execute(INSERT, {"rows": msgspec.json.encode(entries).decode()})


def page(connection: Connection, before: int, limit: int) -> list[dict[str, Any]]:
    """Returns the newest entries older than `before`, newest first."""
    rows = connection.execute(PAGE, {"before": before, "limit": limit})
    return [dict(row._mapping) for row in rows]
