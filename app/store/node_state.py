"""What each node last said of itself, and when the database heard it."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection

from app.store.database import statement

ORDINALS = statement(
    "ordinals_of_nodes", "SELECT node, ordinal FROM node_state WHERE node = ANY(CAST(:nodes AS text[]))"
)
INVENTORY = statement("inventory_of_node", "SELECT inventory FROM node_inventory WHERE node = :node")
ONE = statement(
    "state_of_node",
    """
    SELECT node, received_at, at, boot_id, health, message, epoch, generation, assignment_version
    FROM node_state WHERE node = :node
    """,
)
# Only nodes whose condition says something else than what is true now.
TURNED = statement(
    "nodes_whose_reporting_turned",
    """
    SELECT name, received_at, reporting FROM (
        SELECT object.name, received_at,
            CASE WHEN received_at IS NULL THEN 'NeverReported'
                 WHEN now() - greatest(received_at, CAST(:since AS timestamptz)) > CAST(:patience AS interval)
                 THEN 'Silent' ELSE 'Reporting' END AS reporting,
            (SELECT condition ->> 'reason' FROM jsonb_array_elements(object.status -> 'conditions') AS condition
             WHERE condition ->> 'type' = 'Reporting') AS said
        FROM object LEFT JOIN node_state ON node_state.node = object.name
        WHERE object.kind = 'Node' AND object.tenant = '') AS node
    WHERE reporting IS DISTINCT FROM said
    ORDER BY name LIMIT :limit
    """,
)
FORGET = statement(
    "forget_deleted_nodes",
    """
    WITH gone AS (
        SELECT node FROM node_state
        WHERE NOT EXISTS (SELECT FROM object WHERE kind = 'Node' AND tenant = '' AND name = node)
          AND received_at < now() - interval '1 day'
    ), inventories AS (DELETE FROM node_inventory USING gone WHERE node_inventory.node = gone.node)
    DELETE FROM node_state USING gone WHERE node_state.node = gone.node
    """,
)


def ordinals(connection: Connection, nodes: Collection[str]) -> dict[str, int]:
    """The ordinal of the newest report of each node."""
    found = connection.execute(ORDINALS, {"nodes": sorted(nodes)})
    return {row.node: row.ordinal for row in found}


def state(connection: Connection, node: str) -> dict[str, Any] | None:
    """What the node last said, with its inventory."""
    row = connection.execute(ONE, {"node": node}).mappings().one_or_none()
    if row is None:
        return None
    return {**row, "inventory": connection.execute(INVENTORY, {"node": node}).scalar()}


def turned(
    connection: Connection, since: datetime, patience: timedelta, limit: int
) -> list[tuple[str, datetime | None, str]]:
    """Nodes whose condition Reporting is to change: (name, last heard, the reason that is true now).

    `since` is when we began to listen: before that nobody could have been heard.
    """
    found = connection.execute(TURNED, {"since": since, "patience": patience, "limit": limit})
    return [(row.name, row.received_at, row.reporting) for row in found]


def forget_deleted(connection: Connection) -> int:
    """Drop the state of nodes that are no longer declared and have been silent for a day."""
    return connection.execute(FORGET).rowcount
