"""The wait after a rollback: until a person resumes the fleet, its plans are only proposed."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection

from app.store.database.database import read_row, statement
from app.store.plans import plan_reads

BEGIN = statement(
    "begin_approval_hold",
    """
    INSERT INTO approval_hold (generation, since) VALUES (:generation, moment())
    ON CONFLICT (only_row) DO UPDATE SET generation = excluded.generation, since = excluded.since
    """,
)
FIND = statement("approval_hold", "SELECT generation, since FROM approval_hold")
LIFT = statement("lift_approval_hold", "DELETE FROM approval_hold RETURNING generation, since")


@dataclass(frozen=True, slots=True)
class ApprovalHold:
    """The plan that a rollback made, and when."""

    generation: int
    since: datetime


def begin(connection: Connection, generation: int) -> None:
    """Holds the fleet from now on."""
    connection.execute(BEGIN, {"generation": generation})


def find(connection: Connection) -> ApprovalHold | None:
    """Returns the hold; None if plans follow the policy's mode."""
    return read_row(ApprovalHold, connection.execute(FIND))


def lift(connection: Connection) -> ApprovalHold | None:
    """Ends the hold and wakes the leader; returns the hold, None if there was none."""
    row = connection.execute(LIFT).one_or_none()
    if row is None:
        return None
    plan_reads.wake(connection)
    return ApprovalHold(*row)
