"""Cordons: nodes and GPUs that get no new copies; drains, which must be empty by a deadline; nodes to be reclaimed,
or drained by who runs their cluster.

A GPU on which a profiling campaign measures counts as drained.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TypedDict

from sqlalchemy import Connection

from app.store.database.database import statement
from app.store.plans import plan_reads
from app.wire import MomentText

ALL_GPUS = -1  # in place of a GPU's index: all GPUs of the node
RECLAIM = "reclaim"  # the mode of a notice of reclaim
CLUSTER = "cluster"  # the mode of a node that who runs its cluster drains, as with `kubectl drain`
PROFILE = "profile"  # the mode of a profiling campaign, which reserves its GPU
NOTICES = (RECLAIM, CLUSTER)
EMPTYING = ("drain", *NOTICES, PROFILE)  # modes in which everything has to leave

# A repeated request keeps the time of the first one. A request for the other mode replaces mode and time.
PUT = statement(
    "put_cordon",
    """
    INSERT INTO cordon (node, gpu, mode, deadline, asked_by, asked_at, message)
    VALUES (:node, :gpu, :mode, :deadline, :asked_by, moment(), :message)
    ON CONFLICT (node, gpu) DO UPDATE SET
        mode = excluded.mode, deadline = excluded.deadline, asked_by = excluded.asked_by, message = excluded.message,
        asked_at = CASE WHEN cordon.mode = excluded.mode THEN cordon.asked_at ELSE excluded.asked_at END
    RETURNING node, gpu, mode, deadline, asked_by, asked_at, message
    """,
)
LIFT = statement(
    "lift_cordon",
    """
    DELETE FROM cordon WHERE node = :node AND (CAST(:gpu AS int) = -1 OR gpu = :gpu)
    RETURNING node, gpu, mode, deadline, asked_by, asked_at, message
    """,
)
LISTED = """
    SELECT node, gpu, mode, deadline, asked_by, asked_at, message FROM cordon
    WHERE CAST(:node AS text) = '' OR node = :node
    UNION ALL
    (SELECT DISTINCT ON (node) node, -1, CASE WHEN deadline IS NULL THEN 'cluster' ELSE 'reclaim' END,
        deadline, asked_by, asked_at, message FROM reclaim_notice
     WHERE NOT is_withdrawn AND (CAST(:node AS text) = '' OR node = :node) ORDER BY node, deadline)
    UNION ALL
    SELECT node, gpu, 'profile', NULL, asked_by, asked_at, 'campaign ' || id || ' measures ' || model || '/' || variant
    FROM campaign WHERE state IN ('waiting', 'measuring') AND (CAST(:node AS text) = '' OR node = :node)
    ORDER BY node, gpu, mode
"""
LIST = statement("list_cordons", LISTED)


class CordonWire(TypedDict):
    """A node, or one GPU of it, that plans keep off; gpu null: all of them."""

    node: str
    gpu: int | None
    mode: str
    deadline: MomentText | None
    askedBy: str
    askedAt: MomentText
    message: str


@dataclass(frozen=True, slots=True)
class Cordon:
    """A cordon or drain of a node or of one of its GPUs, a notice that the node will be reclaimed, or a campaign."""

    node: str
    gpu: int
    mode: str  # cordon, drain, reclaim, cluster, profile
    deadline: datetime | None
    asked_by: str
    asked_at: datetime
    message: str = ""

    def wire(self) -> CordonWire:
        return {
            "node": self.node,
            "gpu": None if self.gpu == ALL_GPUS else self.gpu,
            "mode": self.mode,
            "deadline": self.deadline.isoformat() if self.deadline else None,
            "askedBy": self.asked_by,
            "askedAt": self.asked_at.isoformat(),
            "message": self.message,
        }


def put(
    connection: Connection, node: str, gpu: int, mode: str, deadline: datetime | None, asked_by: str, message: str
) -> Cordon:  # fmt: skip
    """Stores a cordon or drain and wakes the leader."""
    values = {
        "node": node, "gpu": gpu, "mode": mode, "deadline": deadline, "asked_by": asked_by, "message": message,
    }  # fmt: skip
    found = Cordon(*connection.execute(PUT, values).one())
    plan_reads.wake(connection)
    return found


def lift(connection: Connection, node: str, gpu: int) -> list[Cordon]:
    """Removes the cordons of one GPU, or of the node and all its GPUs; returns them."""
    found = [Cordon(*row) for row in connection.execute(LIFT, {"node": node, "gpu": gpu})]
    if found:
        plan_reads.wake(connection)
    return found


def list_cordons(connection: Connection, node: str = "") -> list[Cordon]:
    """Returns all cordons and notices of reclaim, or those of a node."""
    return [Cordon(*row) for row in connection.execute(LIST, {"node": node})]
