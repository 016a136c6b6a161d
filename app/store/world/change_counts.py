"""Counts the changes of an account by day, in the transaction that makes them."""

from __future__ import annotations

from sqlalchemy import Connection

from app.store.database.database import statement

ADD = statement(
    "count_changes",
    """
    INSERT INTO change_count AS known (account, day, units)
    VALUES (:account, CAST(moment() AT TIME ZONE 'UTC' AS date), :units)
    ON CONFLICT (account, day) DO UPDATE SET units = known.units + excluded.units
    RETURNING units
    """,
)
FORGET = statement(
    "forget_change_counts",
    "DELETE FROM change_count WHERE day < CAST(moment() AT TIME ZONE 'UTC' AS date) - 1",
)


def add(connection: Connection, account: str, units: int) -> int:
    """Counts changes of today, UTC; returns how many the account has made."""
    return int(connection.scalar(ADD, {"account": account, "units": units}) or 0)


def forget(connection: Connection) -> None:
    """Deletes the counts of days before yesterday."""
    connection.execute(FORGET)
