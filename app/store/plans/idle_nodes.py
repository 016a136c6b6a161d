"""The nodes that the planner found empty, and since when: kept across leaders."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection

from app.store.database.database import statement

KEEP = statement(
    "keep_idle_nodes",
    """
    WITH gone AS (DELETE FROM idle_node WHERE node <> ALL (CAST(:nodes AS text[]))),
    fresh AS (
        INSERT INTO idle_node (node, since) SELECT node, moment() FROM unnest(CAST(:nodes AS text[])) AS idle (node)
        ON CONFLICT (node) DO NOTHING
    )
    SELECT idle.node, coalesce(extract(epoch FROM moment() - since), 0) AS seconds
    FROM unnest(CAST(:nodes AS text[])) AS idle (node) LEFT JOIN idle_node USING (node)
    """,
)


def keep(connection: Connection, empty: Sequence[str]) -> dict[str, float]:
    """Records that exactly these nodes are empty; returns for how many seconds each has been."""
    return {row.node: float(row.seconds) for row in connection.execute(KEEP, {"nodes": sorted(empty)})}
