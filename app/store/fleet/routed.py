"""Counts the copies that answer requests of each service: those that nodes report as routed."""

from __future__ import annotations

from sqlalchemy import Connection

from app.store.database.database import statement

ROUTED = statement(
    "routed_copies",
    """
    SELECT concat(owner ->> 'tenant', '/', owner ->> 'service') AS service, count(*) AS copies
    FROM node_detail, jsonb_array_elements(coalesce(detail -> 'copies', '[]')) AS copy,
         LATERAL (SELECT detail -> 'owners' -> (copy ->> 'instance') AS owner) AS known
    WHERE CAST(copy ->> 'routed' AS boolean) AND owner ? 'service' AND :tenant IN ('', owner ->> 'tenant')
    GROUP BY 1
    """,
)


def count_routed(connection: Connection, tenant: str) -> dict[str, int]:
    """Returns the number of routed copies by service, of all tenants or of one."""
    return {row.service: row.copies for row in connection.execute(ROUTED, {"tenant": tenant})}
