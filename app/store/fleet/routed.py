"""Counts the copies that answer requests of each service: those that nodes report as routed."""

from __future__ import annotations

from sqlalchemy import Connection

from app.store.database.database import statement

# OFFSET 0 is a fence: without it each use of a copy decompresses the whole detail of its node again.
ROUTED = statement(
    "routed_copies",
    """
    SELECT concat(owner ->> 'tenant', '/', owner ->> 'service') AS service, count(*) AS copies
    FROM node_detail,
         LATERAL (SELECT detail -> 'owners' AS owners, detail -> 'copies' AS copies OFFSET 0) AS once,
         LATERAL (
            SELECT copy, owners -> (copy ->> 'instance') AS owner
            FROM jsonb_array_elements(coalesce(copies, '[]')) AS copy OFFSET 0) AS known
    WHERE CAST(copy ->> 'routed' AS boolean) AND owner ? 'service' AND :tenant IN ('', owner ->> 'tenant')
    GROUP BY 1
    """,
)


def count_routed(connection: Connection, tenant: str) -> dict[str, int]:
    """Returns the number of routed copies by service, of all tenants or of one."""
    return {row.service: row.copies for row in connection.execute(ROUTED, {"tenant": tenant})}
