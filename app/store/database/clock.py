"""The database's clock, which all replicas share."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Connection

from app.store.database.database import statement

NOW = statement("now", "SELECT date_trunc('milliseconds', moment())")


def now(connection: Connection) -> datetime:
    moment: datetime = connection.execute(NOW).scalar_one()
    return moment
