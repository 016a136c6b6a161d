"""Nodes whose usage could not be accounted for: each waits alone, longer after each failure, and delays no other."""

from __future__ import annotations

from sqlalchemy import Connection

from app.store.database.database import statement
from app.store.world import events
from app.store.world.events import NewEvent

FIRST_WAIT = "1 minute"  # doubled with each failure
LONGEST_WAIT = "1 hour"
MOST_REASON_CHARACTERS = 500

QUARANTINE = statement(
    "quarantine_node",
    """
    INSERT INTO ledger_quarantine AS known (node, since, failures, retry_at, reason)
    VALUES (:node, (SELECT moment()), 1, (SELECT moment()) + CAST(:first_wait AS interval), :reason)
    ON CONFLICT (node) DO UPDATE SET
        failures = known.failures + 1, reason = excluded.reason,
        retry_at = (SELECT moment()) + least(CAST(:first_wait AS interval) * power(2, least(known.failures, 20)),
                                             CAST(:longest_wait AS interval))
    """,
)
RELEASE = statement("release_node", "DELETE FROM ledger_quarantine WHERE node = :node")
COUNT = statement("count_quarantined_nodes", "SELECT count(*) FROM ledger_quarantine")


def quarantine(connection: Connection, node: str, reason: str) -> None:
    """Leaves the node out until its next attempt, and records an event."""
    given = {"node": node, "reason": reason[:MOST_REASON_CHARACTERS]}
    connection.execute(QUARANTINE, given | {"first_wait": FIRST_WAIT, "longest_wait": LONGEST_WAIT})
    message = f"the usage of node {node} cannot be accounted for: {reason[:MOST_REASON_CHARACTERS]}"
    events.record(connection, [NewEvent("node_quarantined", "alarm", message, "Node", name=node)])


def release(connection: Connection, node: str) -> None:
    """Ends the quarantine of a node that was accounted for."""
    connection.execute(RELEASE, {"node": node})
    message = f"the usage of node {node} is accounted for again"
    events.record(connection, [NewEvent("node_released", "info", message, "Node", name=node)])


def count(connection: Connection) -> int:
    """Returns how many nodes are quarantined."""
    return int(connection.execute(COUNT).scalar_one())
