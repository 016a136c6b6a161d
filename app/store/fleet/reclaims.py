"""Notices of reclaim: nodes that their cloud takes back at a deadline, or that who runs their cluster drains.

Everything leaves them, as in a drain.
"""

from __future__ import annotations

from datetime import datetime
from typing import Literal, NamedTuple, TypeAlias

from sqlalchemy import Connection

from app.store.database.database import statement
from app.store.fleet import cordons
from app.store.fleet.cordons import Cordon
from app.store.plans import plan_reads


class NodeNotice(NamedTuple):
    """What a node says that others will do with it."""

    deadline: datetime | None  # when it is taken back; None: who runs its cluster drains it


NoticeSource: TypeAlias = Literal["request", "node"]  # a person or a program asked, or the node's agent reported it

# A repeated notice changes nothing: no row is returned. One that was withdrawn counts again with another deadline.
PUT = statement(
    "put_reclaim_notice",
    """
    INSERT INTO reclaim_notice (node, source, deadline, asked_by, asked_at, message)
    VALUES (:node, :source, :deadline, :asked_by, moment(), :message)
    ON CONFLICT (node, source) DO UPDATE SET
        deadline = excluded.deadline, asked_by = excluded.asked_by, asked_at = excluded.asked_at,
        message = excluded.message, is_withdrawn = false
    WHERE reclaim_notice.deadline IS DISTINCT FROM excluded.deadline
       OR (excluded.source = 'request' AND reclaim_notice.message <> excluded.message)
    RETURNING node
    """,
)
# A request withdraws every notice of the node; what its agent still reports stays withdrawn.
WITHDRAW_ASKED = statement(
    "withdraw_asked_notice", "DELETE FROM reclaim_notice WHERE node = :node AND source = 'request'"
)
WITHDRAW_REPORTED = statement(
    "withdraw_reported_notice",
    "UPDATE reclaim_notice SET is_withdrawn = true WHERE node = :node AND source = 'node'",
)
FORGET_REPORTED = statement(
    "forget_reported_notice",
    "DELETE FROM reclaim_notice WHERE node = :node AND source = 'node' RETURNING NOT is_withdrawn",
)
FORGET = statement("forget_reclaim_notices", "DELETE FROM reclaim_notice WHERE node = :node")
REPORTED = statement("reported_notices", "SELECT node, deadline FROM reclaim_notice WHERE source = 'node'")


def put(
    connection: Connection, node: str, source: NoticeSource, deadline: datetime | None, asked_by: str, message: str
) -> bool:  # fmt: skip
    """Stores a notice and wakes the leader; returns False if it was known."""
    values = {"node": node, "source": source, "deadline": deadline, "asked_by": asked_by, "message": message}
    is_new = connection.execute(PUT, values).scalar() is not None
    if is_new:
        plan_reads.wake(connection)
    return is_new


def read_in_force(connection: Connection, node: str) -> Cordon | None:
    """Returns a node's notice in force: the one with the earliest deadline; one without comes last."""
    return next((found for found in cordons.list_cordons(connection, node) if found.mode in cordons.NOTICES), None)


def withdraw(connection: Connection, node: str) -> None:
    """Withdraws every notice of the node."""
    connection.execute(WITHDRAW_ASKED, {"node": node})
    connection.execute(WITHDRAW_REPORTED, {"node": node})
    plan_reads.wake(connection)


def forget_reported(connection: Connection, node: str) -> bool:
    """Removes what the node's agent reports no longer; returns whether it was in force."""
    was_in_force = bool(connection.execute(FORGET_REPORTED, {"node": node}).scalar())
    if was_in_force:
        plan_reads.wake(connection)
    return was_in_force


def forget(connection: Connection, node: str) -> None:
    """Removes the notices of a node that is deleted."""
    connection.execute(FORGET, {"node": node})


def read_reported(connection: Connection) -> dict[str, NodeNotice]:
    """Returns what nodes have reported themselves, also what was withdrawn."""
    return {row.node: NodeNotice(row.deadline) for row in connection.execute(REPORTED)}
