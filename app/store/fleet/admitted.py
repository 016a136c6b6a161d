"""The allow-lists that nodes have reported."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Connection

from app.manifests.model import Free
from app.store.database.database import statement

ADMITTED = statement(
    "admitted_by_nodes",
    """
    SELECT coalesce(status -> 'admitted', '[]') AS admitted, count(*) AS nodes, min(name) AS node
    FROM object
    WHERE kind = 'Node' AND tenant = '' AND coalesce(status -> 'templates', '[]') <> '[]'
    GROUP BY coalesce(status -> 'admitted', '[]')
    ORDER BY jsonb_array_length(coalesce(status -> 'admitted', '[]')) DESC, min(name)
    LIMIT 100
    """,
)


@dataclass(frozen=True, slots=True)
class ReportedAllowList:
    """One allow-list, how many nodes reported it, and the first of them."""

    admitted: Sequence[Free]
    nodes: int
    node: str


def list_reported_allow_lists(connection: Connection) -> list[ReportedAllowList]:
    """Returns the distinct allow-lists of nodes that have reported, the longest first."""
    return [ReportedAllowList(row.admitted, row.nodes, row.node) for row in connection.execute(ADMITTED)]
