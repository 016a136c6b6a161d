"""The pause of all scalers: until a person resumes them, every workload's mode is advisory, whatever it declares."""

from __future__ import annotations

from sqlalchemy import Connection

from app.store.database import lease
from app.store.database.database import read_row, statement
from app.store.database.lease import SCALER
from app.store.plans.scale_rows import ScalePause

BEGIN = statement(
    "begin_scale_pause",
    """
    INSERT INTO scale_pause (paused_by, since, message) VALUES (:by, moment(), :message)
    ON CONFLICT (only_row) DO NOTHING
    """,
)
_WRITING = "(SELECT count(*) FROM scale_decision WHERE state = 'writing')"
FIND = statement("scale_pause", f"SELECT paused_by, since, message, {_WRITING} FROM scale_pause")
LIFT = statement("lift_scale_pause", f"DELETE FROM scale_pause RETURNING paused_by, since, message, {_WRITING}")


def begin(connection: Connection, by: str, message: str) -> bool:
    """Pauses all scalers; False if they are paused already.

    A write that was begun before is visible to this transaction from here on, and no other begins after it.
    """
    lease.hold_alone(connection, SCALER)
    return connection.execute(BEGIN, {"by": by, "message": message}).rowcount == 1


def find(connection: Connection) -> ScalePause | None:
    """Returns the pause; None if each workload's mode holds."""
    return read_row(ScalePause, connection.execute(FIND))


def lift(connection: Connection) -> ScalePause | None:
    """Ends the pause and returns it; None if there was none."""
    return read_row(ScalePause, connection.execute(LIFT))
