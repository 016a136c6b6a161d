"""Streams of versions: a writer locks its stream first, so versions become visible in commit order."""

from __future__ import annotations

from sqlalchemy import Connection

from app.store.database.database import statement

CHANNEL = "gpuwright"

LOCK = statement("lock_versions", "SELECT value FROM version WHERE name = :name FOR UPDATE")
ADVANCE = statement(
    "advance_version", f"UPDATE version SET value = :value WHERE name = :name RETURNING pg_notify('{CHANNEL}', name)"
)
CURRENT = statement("current_versions", "SELECT name, value, floor FROM version")
RAISE_FLOOR = statement("raise_version_floor", "UPDATE version SET floor = greatest(floor, :floor) WHERE name = :name")

LEAP = statement("leap_versions", "UPDATE version SET value = value + :by, floor = value + :by")
LEAP_BY = 1_000_000_000


def lock(connection: Connection, name: str) -> int:
    """Locks the stream until the transaction ends; returns its latest version."""
    return int(connection.scalar(LOCK, {"name": name}) or 0)


def advance(connection: Connection, name: str, value: int) -> None:
    """Publishes versions up to `value` when this transaction commits, and wakes those that wait."""
    connection.execute(ADVANCE, {"name": name, "value": value})


def current(connection: Connection) -> dict[str, tuple[int, int]]:
    """Returns each stream's latest version, and the floor below which its changes are no longer kept."""
    return {row.name: (row.value, row.floor) for row in connection.execute(CURRENT)}


def raise_floor(connection: Connection, name: str, floor: int) -> None:
    """Records that changes up to `floor` are no longer kept."""
    connection.execute(RAISE_FLOOR, {"name": name, "floor": floor})


def leap(connection: Connection) -> None:
    """Advances past the versions issued between a backup and its restore, which are lost.

    A watch from that time must list again, so that it does not mistake new changes for those that it received.
    """
    connection.execute(LEAP, {"by": LEAP_BY})
