"""The jobs of a tenant or of all, those that need attention first; and which names only jobs have."""

from __future__ import annotations

from collections.abc import Collection

from sqlalchemy import Connection

from app.manifests.model import Free
from app.store.database.database import statement

LISTED = statement(
    "listed_jobs",
    """
    SELECT tenant, name, status FROM object
    WHERE kind = 'Job' AND (CAST(:tenant AS text) = '' OR tenant = :tenant)
        AND (CAST(:phase AS text) = '' OR status ->> 'phase' = :phase)
        AND (CAST(:find AS text) = '' OR position(:find IN tenant || '/' || name) > 0)
        AND (CAST(:name AS text) = '' OR tenant || '/' || name = :name)
    ORDER BY array_position(ARRAY['failed', 'preempted', 'queued', 'starting', 'running', 'finished'],
                            status ->> 'phase') NULLS FIRST, tenant, name
    LIMIT :most OFFSET :after
    """,
)

KINDS = statement(
    "kinds_of_work",
    """
    SELECT object.tenant || '/' || object.name AS full_name, max(kind) = 'Job' AS is_job
    FROM unnest(CAST(:names AS text[])) AS wanted (name)
    JOIN object ON kind IN ('Service', 'Job') AND object.tenant = split_part(wanted.name, '/', 1)
        AND object.name = split_part(wanted.name, '/', 2)
    GROUP BY full_name
    """,
)


def list_jobs(
    connection: Connection, tenant: str, most: int, after: int = 0, phase: str = "", find: str = "", name: str = ""
) -> list[tuple[str, Free]]:
    """Returns jobs (tenant/name) with their status; filtered by phase, by a part of the name or by the whole name."""
    wanted = {"tenant": tenant, "most": most, "after": after, "phase": phase, "find": find, "name": name}
    rows = connection.execute(LISTED, wanted)
    return [(f"{row.tenant}/{row.name}", row.status or {}) for row in rows]


def are_jobs(connection: Connection, names: Collection[str]) -> dict[str, bool]:
    """Returns for each declared tenant/name whether only a job has it; deleted names are left out."""
    return {row.full_name: row.is_job for row in connection.execute(KINDS, {"names": sorted(names)})}
