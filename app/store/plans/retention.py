"""Deletes old plans, cycles and their pieces: by days, and by bytes.

The plan in force stays, however old it is."""

from __future__ import annotations

from sqlalchemy import Connection

from app.store.database.database import statement
from app.store.plans import pieces
from app.store.plans.plans import IN_FORCE

FORGET_CYCLES = statement(
    "forget_cycles",
    """
    DELETE FROM cycle WHERE id IN (
        SELECT id FROM cycle WHERE at < moment() - CAST(:days AS float8) * interval '1 day' ORDER BY id LIMIT :limit)
    """,
)


FORGET_PLANS = statement(
    "forget_plans",
    """
    DELETE FROM plan WHERE generation IN (
        SELECT generation FROM plan WHERE at < moment() - CAST(:days AS float8) * interval '1 day'
            AND generation < (SELECT max(generation) FROM plan WHERE state = ANY(CAST(:states AS text[])))
        ORDER BY generation LIMIT :limit)
    """,
)


# The oldest plans and cycles, as far as their pieces exceed the allowed size.
BYTES = statement("bytes_of_pieces", "SELECT coalesce(sum(octet_length(body)), 0) FROM piece")


FORGET_OLDEST = statement(
    "forget_oldest_plans",
    """
    DELETE FROM plan WHERE generation IN (
        SELECT generation FROM plan
        WHERE generation < (SELECT max(generation) FROM plan WHERE state = ANY(CAST(:states AS text[])))
        ORDER BY generation LIMIT :limit)
    """,
)


def size(connection: Connection) -> int:
    """Returns the bytes of all pieces that plans and cycles refer to."""
    return int(connection.execute(BYTES).scalar_one())


def forget(connection: Connection, days: float, most_bytes: float, limit: int) -> int:
    """Deletes plans and cycles older than so many days, and the oldest while pieces take more than so many bytes."""
    values = {"days": days, "limit": limit, "states": list(IN_FORCE)}
    gone = connection.execute(FORGET_CYCLES, values).rowcount + connection.execute(FORGET_PLANS, values).rowcount
    if not gone and size(connection) > most_bytes:
        gone = connection.execute(FORGET_OLDEST, values).rowcount
    pieces.prune(connection)
    return gone
