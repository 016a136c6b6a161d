"""The last report of each node, and when the database received it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import Connection

from app.manifests.model import Free
from app.store.database.database import statement

ORDINALS = statement(
    "ordinals_of_nodes", "SELECT node, ordinal FROM node_state WHERE node = ANY(CAST(:nodes AS text[]))"
)
INVENTORY = statement("inventory_of_node", "SELECT inventory FROM node_inventory WHERE node = :node")
STATE = statement(
    "state_of_node",
    """
    SELECT node, received_at, at, boot_id, health, message, epoch, generation, assignment_version
    FROM node_state WHERE node = :node
    """,
)
DETAIL = statement("detail_of_node", "SELECT detail FROM node_detail WHERE node = :node")
# Nodes whose status does not yet match their report of devices, or that were declared again since.
DEVICE_CHANGES = statement(
    "nodes_with_news_of_devices",
    """
    SELECT object.name, node_inventory.inventory, node_inventory.changed_at AS inventory_at,
           node_detail.detail -> 'gpus' AS gpus, node_detail.changed_at AS detail_at
    FROM object JOIN node_inventory ON node_inventory.node = object.name
    LEFT JOIN node_detail ON node_detail.node = object.name
    WHERE object.kind = 'Node' AND object.tenant = ''
      AND (NOT node_inventory.noted OR NOT node_detail.noted OR object.generation IS DISTINCT FROM (
           SELECT CAST(condition ->> 'observedGeneration' AS bigint)
           FROM jsonb_array_elements(object.status -> 'conditions') AS condition
           WHERE condition ->> 'type' = 'InventoryMismatch'))
      AND :only IN ('', object.name)
    ORDER BY object.name LIMIT :limit
    """,
)
# A report that came in meanwhile has another time, and stays to be noted.
MARK_NOTED = statement(
    "note_devices",
    """
    WITH read AS (
        SELECT * FROM unnest(CAST(:nodes AS text[]), CAST(:inventories AS timestamptz[]),
                             CAST(:details AS timestamptz[])) AS read (node, inventory_at, detail_at)
    ), inventories AS (
        UPDATE node_inventory SET noted = true FROM read
        WHERE node_inventory.node = read.node AND node_inventory.changed_at = read.inventory_at
              AND NOT node_inventory.noted
    )
    UPDATE node_detail SET noted = true FROM read
    WHERE node_detail.node = read.node AND node_detail.changed_at = read.detail_at AND NOT node_detail.noted
    """,
)
# A GPU type has changed: nodes with that type are compared with it again.
MARK_FOR_COMPARISON = statement(
    "look_again_at_devices",
    """
    UPDATE node_inventory SET noted = false
    FROM reference JOIN object ON object.uid = reference.referrer AND object.kind = 'Node'
    WHERE reference.kind = 'GpuType' AND reference.tenant = '' AND reference.name = ANY(CAST(:types AS text[]))
      AND node_inventory.node = object.name
    """,
)
# Only nodes whose condition differs from the present state.
REPORTING_CHANGES = statement(
    "nodes_whose_reporting_turned",
    """
    SELECT name, received_at, reporting FROM (
        SELECT object.name, received_at,
            CASE WHEN received_at IS NULL THEN 'NeverReported'
                 WHEN (SELECT moment()) - greatest(received_at, CAST(:since AS timestamptz))
                      > CAST(:patience AS interval)
                 THEN 'Silent' ELSE 'Reporting' END AS reporting,
            (SELECT condition ->> 'reason' FROM jsonb_array_elements(object.status -> 'conditions') AS condition
             WHERE condition ->> 'type' = 'Reporting') AS stated
        FROM object LEFT JOIN node_state ON node_state.node = object.name
        WHERE object.kind = 'Node' AND object.tenant = '') AS node
    WHERE reporting IS DISTINCT FROM stated
    ORDER BY name LIMIT :limit
    """,
)
FORGET = statement(
    "forget_deleted_nodes",
    """
    WITH gone AS (
        SELECT node FROM node_state
        WHERE NOT EXISTS (SELECT FROM object WHERE kind = 'Node' AND tenant = '' AND name = node)
          AND received_at < (SELECT moment()) - interval '1 day'
    ), inventories AS (DELETE FROM node_inventory USING gone WHERE node_inventory.node = gone.node),
    details AS (DELETE FROM node_detail USING gone WHERE node_detail.node = gone.node),
    assigned AS (
        -- The highest epoch stays: older leaders are known by it (I1).
        DELETE FROM assignment USING gone WHERE assignment.node = gone.node
            AND assignment.epoch < (SELECT max(epoch) FROM assignment)
    )
    DELETE FROM node_state USING gone WHERE node_state.node = gone.node
    """,
)


def ordinals(connection: Connection, nodes: Collection[str]) -> dict[str, int]:
    """Returns the ordinal of the newest report of each node."""
    found = connection.execute(ORDINALS, {"nodes": sorted(nodes)})
    return {row.node: row.ordinal for row in found}


def state(connection: Connection, node: str) -> Free | None:
    """Returns the node's last report, with its inventory."""
    row = connection.execute(STATE, {"node": node}).mappings().one_or_none()
    if row is None:
        return None
    return {**row, "inventory": connection.execute(INVENTORY, {"node": node}).scalar()}


def detail(connection: Connection, node: str) -> Free | None:
    """Returns the copies, refusals and devices in the node's last report; None when it never reported."""
    found: Free | None = connection.execute(DETAIL, {"node": node}).scalar()
    return found


@dataclass(frozen=True, slots=True)
class ReportedDevices:
    """The devices that a node reported, and when."""

    node: str
    inventory: Free
    inventory_at: datetime
    gpus: Sequence[Free] | None  # the unhealthy ones
    detail_at: datetime | None


def device_changes(connection: Connection, limit: int, only: str = "") -> list[ReportedDevices]:
    """Returns the devices of nodes, or of only one, whose status may be out of date."""
    rows = connection.execute(DEVICE_CHANGES, {"limit": limit, "only": only})
    return [ReportedDevices(*row) for row in rows]


def mark_noted(connection: Connection, reports: Sequence[ReportedDevices]) -> None:
    """Records that the nodes' status matches these reports."""
    connection.execute(
        MARK_NOTED,
        {
            "nodes": [report.node for report in reports],
            "inventories": [report.inventory_at for report in reports],
            "details": [report.detail_at for report in reports],
        },
    )


def mark_for_comparison(connection: Connection, types: Collection[str]) -> None:
    """Marks the nodes with these GPU types, which have changed, for another comparison."""
    if types:
        connection.execute(MARK_FOR_COMPARISON, {"types": sorted(types)})


def reporting_changes(
    connection: Connection, since: datetime, patience: timedelta, limit: int
) -> list[tuple[str, datetime | None, str]]:
    """Returns the nodes whose condition Reporting must change: (name, last report, the reason that is true now).

    `since` is when this server began to listen: no node can have been silent for longer.
    """
    found = connection.execute(REPORTING_CHANGES, {"since": since, "patience": patience, "limit": limit})
    return [(row.name, row.received_at, row.reporting) for row in found]


def forget_deleted(connection: Connection) -> int:
    """Deletes the state of nodes that are no longer declared and have been silent for a day; returns how many."""
    return connection.execute(FORGET).rowcount
