"""The jobs of a tenant or of all, those that need attention first."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection

from app.store.database.database import statement

LISTED = statement(
    "listed_jobs",
    """
    SELECT tenant, name, status FROM object
    WHERE kind = 'Job' AND (CAST(:tenant AS text) = '' OR tenant = :tenant)
    ORDER BY array_position(ARRAY['failed', 'preempted', 'queued', 'starting', 'running', 'finished'],
                            status ->> 'phase') NULLS FIRST, tenant, name
    LIMIT :most
    """,
)


def listed(connection: Connection, tenant: str, most: int) -> list[tuple[str, dict[str, Any]]]:
    """Returns jobs, tenant/name, with their status."""
    rows = connection.execute(LISTED, {"tenant": tenant, "most": most})
    return [(f"{row.tenant}/{row.name}", row.status or {}) for row in rows]
