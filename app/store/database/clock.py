"""The database's clock, which all replicas share."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Connection

from app.store.database.database import statement
from app.store.database.simulated import moment_of

MOMENT = statement("moment", "SELECT moment()")
NOW = statement("now", "SELECT date_trunc('milliseconds', moment())")


def moment(connection: Connection) -> datetime:
    """Returns the database's time, or the simulation's, which takes no query."""
    found: datetime = moment_of(connection) or connection.execute(MOMENT).scalar_one()
    return found


def now(connection: Connection) -> datetime:
    """Returns that time in whole milliseconds."""
    if (simulated := moment_of(connection)) is not None:
        return simulated.replace(microsecond=simulated.microsecond // 1000 * 1000)
    found: datetime = connection.execute(NOW).scalar_one()
    return found
