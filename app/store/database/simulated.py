"""The time of a simulation, which its statements take from it wherever they would ask for the database's."""

from __future__ import annotations

from datetime import datetime

from psycopg import Cursor
from sqlalchemy import Connection

CALL = "moment()"
GIVEN = "CAST(%(simulated_moment)s AS timestamptz)"
VIEWS = "FROM report."  # the views of this schema ask for the time themselves
SET = "SELECT set_config('gpuwright.moment', %s, false)"


def tell_moment(connection: Connection, moment: datetime) -> None:
    """Makes this the time of the statements that this connection runs from now on."""
    connection.info["moment"] = moment


def moment_of(connection: Connection) -> datetime | None:
    """Returns the simulation's time in this transaction; None where the database's clock counts."""
    moment: datetime | None = connection.info.get("moment")
    return moment


def give_moment(
    connection: Connection, cursor: Cursor, sql: str, values: object, _context: object, _many: bool
) -> tuple[str, object]:
    """Returns a statement and its values with the simulation's time in both, so that no other statement sets it."""
    moment = moment_of(connection)
    if moment is None or (CALL not in sql and VIEWS not in sql):
        return sql, values
    if VIEWS not in sql and isinstance(values, dict):
        return sql.replace(CALL, GIVEN), {**values, "simulated_moment": moment}
    cursor.connection.execute(SET, [moment.isoformat()])
    return sql, values
