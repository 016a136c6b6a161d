"""Housekeeping jobs, each run by one replica at a time."""

from __future__ import annotations

from sqlalchemy import Connection

from app.store.database.database import statement

# Our own number, in decimal: Postgres 15 reads no hexadecimal.
TAKE = statement("take_turn", "SELECT pg_try_advisory_xact_lock(1735420019, hashtext(:job))")


def take(connection: Connection, job: str) -> bool:
    """Takes the job until the transaction ends; False while another replica runs it."""
    return bool(connection.execute(TAKE, {"job": job}).scalar_one())
