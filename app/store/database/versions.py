"""The streams of versions: a writer locks its stream first, so versions become visible in commit order."""

from __future__ import annotations

from sqlalchemy import Connection

from app.store.database.database import statement

CHANNEL = "gpuwright"

LOCK = statement("lock_versions", "SELECT value FROM version WHERE name = :name FOR UPDATE")
ADVANCE = statement("advance_version", "UPDATE version SET value = :value WHERE name = :name")
NOTIFY = statement("notify_version", f"SELECT pg_notify('{CHANNEL}', :name)")
CURRENT = statement("current_versions", "SELECT name, value, floor FROM version")
RAISE_FLOOR = statement("raise_version_floor", "UPDATE version SET floor = greatest(floor, :floor) WHERE name = :name")

LEAP = statement("leap_versions", "UPDATE version SET value = value + :by, floor = value + :by")
LEAP_BY = 1_000_000_000


def lock(connection: Connection, name: str) -> int:
    """Hold the stream until the transaction ends; its latest version."""
    return int(connection.scalar(LOCK, {"name": name}) or 0)


def advance(connection: Connection, name: str, value: int) -> None:
    """Publish versions up to `value` when this transaction commits, and wake those who wait."""
    connection.execute(ADVANCE, {"name": name, "value": value})
    connection.execute(NOTIFY, {"name": name})


def current(connection: Connection) -> dict[str, tuple[int, int]]:
    """Each stream's latest version, and the floor below which its changes are no longer kept."""
    return {row.name: (row.value, row.floor) for row in connection.execute(CURRENT)}


def raise_floor(connection: Connection, name: str, floor: int) -> None:
    """Changes up to `floor` are no longer kept."""
    connection.execute(RAISE_FLOOR, {"name": name, "floor": floor})


def leap(connection: Connection) -> None:
    """Leave behind the versions given out between a backup and its restore, which nobody knows any more.

    Who watched then is told to list again, instead of taking other changes for those it saw.
    """
    connection.execute(LEAP, {"by": LEAP_BY})
