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
        AND (CAST(:phase AS text) = '' OR status ->> 'phase' = :phase)
        AND (CAST(:find AS text) = '' OR position(:find IN tenant || '/' || name) > 0)
    ORDER BY array_position(ARRAY['failed', 'preempted', 'queued', 'starting', 'running', 'finished'],
                            status ->> 'phase') NULLS FIRST, tenant, name
    LIMIT :most OFFSET :after
    """,
)


def listed(
    connection: Connection, tenant: str, most: int, after: int = 0, phase: str = "", find: str = ""
) -> list[tuple[str, dict[str, Any]]]:
    """Returns jobs, tenant/name, with their status: those of a phase, or whose name has a part, if one is given."""
    wanted = {"tenant": tenant, "most": most, "after": after, "phase": phase, "find": find}
    rows = connection.execute(LISTED, wanted)
    return [(f"{row.tenant}/{row.name}", row.status or {}) for row in rows]
