"""The log of changes that a watch reads, in the order in which they became visible."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
from sqlalchemy import Connection

from app.manifests.model import Free, Kind
from app.store.database.database import statement
from app.store.world.objects import StoredObject


@dataclass(frozen=True, slots=True)
class ObjectChange:
    """One object added, modified or deleted at a version."""

    version: int
    kind: Kind
    tenant: str
    action: str
    admits: list[str] | None
    admitted_before: list[str] | None
    object: Free

    def action_for(self, tenant: str) -> str | None:
        """Returns the action as the tenant sees it; None if it sees none."""
        if not tenant or self.tenant:
            return self.action
        now = self.admits is None or tenant in self.admits
        before = self.admitted_before is None or tenant in self.admitted_before
        match self.action, before, now:
            case "modified", True, False:
                return "deleted"
            case "modified", False, True:
                return "added"
        return self.action if now else None


INSERT = statement(
    "insert_changes",
    """
    INSERT INTO change (version, kind, tenant, name, uid, action, admits, admitted_before, object)
    SELECT version, kind, tenant, name, uid, action, admits, admitted_before, object
    FROM jsonb_to_recordset(CAST(:rows AS jsonb)) AS r (
        version bigint, kind text, tenant text, name text, uid uuid, action text,
        admits text[], admitted_before text[], object jsonb)
    """,
)
AFTER = statement(
    "changes_after",
    """
    SELECT version, kind, tenant, action, admits, admitted_before, object FROM change
    WHERE version > :after AND version <= :upto
        AND kind = ANY (CAST(:kinds AS text[])) AND (:tenant = '' OR tenant IN ('', :tenant))
    ORDER BY version LIMIT :limit
    """,
)
PRUNE = statement(
    "prune_changes",
    """
    WITH gone AS (
        DELETE FROM change WHERE version <= (
            SELECT max(version) FROM (
                SELECT version FROM change
                WHERE at < now() - make_interval(secs => :seconds)
                ORDER BY version LIMIT :limit) AS old)
        RETURNING version)
    SELECT max(version) FROM gone
    """,
)


def record(connection: Connection, changes: Sequence[tuple[str, StoredObject, list[str] | None]]) -> None:
    """Logs each (action, object, tenants that saw it before) at the object's resource version."""
    rows = [
        {
            "version": stored.resource_version,
            "kind": stored.kind,
            "tenant": stored.tenant,
            "name": stored.name,
            "uid": stored.uid,
            "action": action,
            "admits": stored.admits,
            "admitted_before": before,
            "object": stored.wire(),
        }
        for action, stored, before in changes
    ]
    if rows:
        connection.execute(INSERT, {"rows": msgspec.json.encode(rows).decode()})


def read_changes_after(
    connection: Connection, version: int, upto: int, kinds: Sequence[Kind], tenant: str, limit: int
) -> list[ObjectChange]:
    """Returns the changes in (version, upto] of these kinds that concern `tenant` (empty: every tenant)."""
    rows = connection.execute(
        AFTER,
        {"after": version, "upto": upto, "kinds": [str(k) for k in kinds], "tenant": tenant, "limit": limit},
    )
    return [
        ObjectChange(row.version, Kind(row.kind), row.tenant, row.action, row.admits, row.admitted_before, row.object)
        for row in rows
    ]


def prune(connection: Connection, older_than_seconds: float, limit: int) -> int | None:
    """Deletes up to `limit` old changes; returns the highest version deleted."""
    highest = connection.scalar(PRUNE, {"seconds": older_than_seconds, "limit": limit})
    return None if highest is None else int(highest)
