"""The time of a simulation, which its Postgres sessions use instead of the clock."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Connection, text

AUTOCOMMIT = "AUTOCOMMIT"
SET = text("/* set_moment */ SELECT set_config('gpuwright.moment', :moment, false)").execution_options(
    statement="set_moment"
)


def set_moment(connection: Connection, moment: datetime) -> None:
    """Sets the session's time, unless it is set to that already."""
    if connection.info.get("moment") != moment:
        connection.execute(SET, {"moment": moment.isoformat()})
        connection.info["moment"] = moment


def moment_of(connection: Connection) -> datetime | None:
    """Returns the simulation's time in this transaction; None where the database's clock counts."""
    moment: datetime | None = connection.info.get("moment")
    return moment


def forget_moment(connection: Connection) -> None:
    """Forgets a time that a rollback has taken back; in autocommit mode, no statement's end does."""
    is_autocommit = connection.get_execution_options().get("isolation_level") == AUTOCOMMIT
    if not connection.invalidated and not is_autocommit:
        connection.info.pop("moment", None)
