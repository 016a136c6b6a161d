"""Nodes that are rented from pools: orders with their states, and what is seen of their nodes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection

from app.store.database.database import statement

# Of ended orders those of the last day, as a node that should be gone may report again.
ROWS = statement(
    "rented_nodes",
    """
    SELECT key, node, pool, hook, state, asked_at, since, start_seconds, minimum_seconds, paid_at, joined_at, called_at,
        returned, ended_at, idle_seconds, rented_node.message,
        coalesce(node_state.received_at > moment() - interval '1 second' * CAST(:silent AS float8), false)
            AND node_state.received_at > greatest(asked_at, ended_at) AS reports,
        node_state.received_at AS heard_at, (SELECT max(received_at) FROM node_state) AS newest_at,
        NOT coalesce(node_state.received_at > moment() - interval '1 second' * CAST(:silent AS float8), false)
            AND EXISTS (SELECT FROM reclaim_notice AS notice WHERE notice.node = rented_node.node
                AND NOT notice.is_withdrawn AND notice.deadline <= moment()) AS reclaimed
    FROM rented_node LEFT JOIN node_state USING (node)
    WHERE ended_at IS NULL OR (
        ended_at > moment() - interval '1 day' AND NOT EXISTS (
            SELECT FROM rented_node AS later
            WHERE later.node = rented_node.node AND later.asked_at > rented_node.asked_at))
    ORDER BY asked_at, node
    """,
)
INSERT = statement(
    "order_rented_node",
    """
    WITH old AS (DELETE FROM rented_node WHERE ended_at < moment() - interval '400 days')
    INSERT INTO rented_node (key, node, pool, hook, state, asked_at, since, start_seconds, minimum_seconds)
    VALUES (:key, :node, :pool, :hook, :state, :asked_at, :asked_at, :start_seconds, :minimum_seconds)
    """,
)
# Only from the state in which it was read: another step may have come between.
UPDATE = statement(
    "change_rented_node",
    """
    UPDATE rented_node SET state = :state, since = :since, paid_at = :paid_at, joined_at = :joined_at,
        called_at = :called_at, returned = :returned, ended_at = :ended_at, message = :message
    WHERE key = :key AND state = :before RETURNING key
    """,
)
IDLE = statement(
    "add_idle_seconds",
    "UPDATE rented_node SET idle_seconds = idle_seconds + :seconds WHERE state = 'joined' AND node = ANY (:nodes)",
)

# A node's hours of the last two weeks count, whenever it joined, until the first notice that was not withdrawn: from
# then on it cannot get another. Those of a node that is being given back are no warnings. An event that happens again
# gets a new id, so ids tell what happened last.
RECLAIMS = statement(
    "count_reclaims",
    """
    SELECT pool, count(noticed.at) FILTER (WHERE noticed.at > begun) AS notices, coalesce(sum(greatest(0,
        extract(epoch FROM coalesce(noticed.at, ended_at, moment()) - greatest(joined_at, begun)))), 0) / 3600
        AS node_hours
    FROM (SELECT moment() - interval '14 days' AS begun) AS counted CROSS JOIN rented_node LEFT JOIN LATERAL (
        SELECT min(event.at) AS at FROM event
        WHERE event.kind = 'Node' AND event.tenant = '' AND event.name = rented_node.node
            AND event.reason = 'reclaim_notice' AND event.severity = 'warning'
            AND event.at >= joined_at AND event.at <= coalesce(ended_at, moment())
            AND NOT EXISTS (
                SELECT FROM event AS later WHERE later.kind = 'Node' AND later.tenant = ''
                    AND later.name = rented_node.node AND later.reason = 'reclaim_withdrawn'
                    AND later.id > event.id AND later.at <= coalesce(ended_at, moment()))) AS noticed ON true
    WHERE joined_at IS NOT NULL AND coalesce(ended_at, moment()) > begun
    GROUP BY pool
    """,
)
IS_LEAVING = statement(
    "rented_node_is_given_back", "SELECT EXISTS (SELECT FROM rented_node WHERE node = :node AND state = 'leaving')"
)


@dataclass(frozen=True, slots=True)
class RentedRow:
    """An order as it is stored; its node has just reported since the order or its end, or is silent and reclaimed."""

    key: str
    node: str
    pool: str
    hook: str
    state: str
    asked_at: datetime
    since: datetime
    start_seconds: float
    minimum_seconds: float
    paid_at: datetime | None
    joined_at: datetime | None
    called_at: datetime | None
    returned: bool
    ended_at: datetime | None
    idle_seconds: float
    message: str
    reports: bool
    reclaimed: bool
    heard_at: datetime | None  # its node last
    newest_at: datetime | None  # the last report of any node


def read(connection: Connection, silent_seconds: float) -> list[RentedRow]:
    """Returns all live orders, and the last ended one of each node for a day."""
    return [RentedRow(**row) for row in connection.execute(ROWS, {"silent": silent_seconds}).mappings()]


def order(connection: Connection, rows: Iterable[Mapping[str, Any]]) -> None:
    """Records orders."""
    for row in rows:
        connection.execute(INSERT, dict(row))


def change(connection: Connection, before: str, row: Mapping[str, Any]) -> bool:
    """Changes an order that is still in the state before; returns whether it was."""
    return connection.execute(UPDATE, {**row, "before": before}).scalar() is not None


def add_idle(connection: Connection, nodes: Iterable[str], seconds: float) -> None:
    """Counts so many seconds in which nothing was planned on these nodes."""
    if listed := sorted(nodes):
        connection.execute(IDLE, {"nodes": listed, "seconds": seconds})


def count_reclaims(connection: Connection) -> dict[str, tuple[int, float]]:
    """Returns by pool how many of its nodes got a notice in the last two weeks, and their hours until then."""
    return {row.pool: (row.notices, float(row.node_hours)) for row in connection.execute(RECLAIMS)}


def is_leaving(connection: Connection, node: str) -> bool:
    """Returns whether a node is being given back."""
    return bool(connection.execute(IS_LEAVING, {"node": node}).scalar())
