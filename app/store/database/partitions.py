"""Partitions, of a day for telemetry and of a month for rollups and money: made in advance, dropped when old."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta

from sqlalchemy import Connection

from app.store.database.database import statement

DAILY = ("gpu_minute", "instance_minute")
MONTHLY = ("gpu_hour", "instance_hour")
MONEY = ("allocation", "cost_hour")

# The day names the partition, so that DDL contains no text from outside.
EXISTING = statement(
    "existing_partitions",
    """
    SELECT child.relname FROM pg_inherits
    JOIN pg_class child ON child.oid = inhrelid
    JOIN pg_class parent ON parent.oid = inhparent
    WHERE parent.relname = ANY(CAST(:tables AS text[])) AND parent.relnamespace = 'public'::regnamespace
    """,
)
TAKE_TURNS = statement("partition_makers_take_turns", "SELECT pg_advisory_xact_lock(:lock)")
IMPATIENT = statement("do_not_wait_long", "SET LOCAL lock_timeout = '2s'")
LOCK = 0x6770_7061_7274  # "gppart"


def ensure(connection: Connection, days: Iterable[datetime], daily: Sequence[str] = DAILY) -> list[str]:
    """Creates the partitions for rows of these days; returns the names of the new ones."""
    wanted: dict[str, tuple[str, datetime, datetime]] = {}
    for day in days:
        start = day.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
        for table in daily:
            wanted[f"{table}_{start:%Y%m%d}"] = (table, start, start + timedelta(days=1))
        month = start.replace(day=1)
        following = (month + timedelta(days=32)).replace(day=1)
        for table in MONTHLY + MONEY:
            wanted[f"{table}_{month:%Y%m}"] = (table, month, following)
    if wanted.keys() <= _existing(connection):
        return []
    connection.execute(TAKE_TURNS, {"lock": LOCK})
    missing = sorted(wanted.keys() - _existing(connection))
    for name in missing:
        table, start, stop = wanted[name]
        # Created apart and then attached: CREATE TABLE ... PARTITION OF would lock readers and writers out.
        connection.execute(statement("make_partition", f"CREATE TABLE {name} (LIKE {table} INCLUDING ALL)"))
        connection.execute(
            statement(
                "attach_partition",
                f"ALTER TABLE {table} ATTACH PARTITION {name} "
                f"FOR VALUES FROM ('{start.isoformat()}') TO ('{stop.isoformat()}')",
            )
        )
    return missing


def drop_before(connection: Connection, tables: Iterable[str], moment: datetime) -> list[str]:
    """Drops the partitions of `tables` that end before `moment`."""
    connection.execute(TAKE_TURNS, {"lock": LOCK})
    connection.execute(IMPATIENT)
    dropped = []
    existing = sorted(_existing(connection))
    for table in tables:
        for name in existing:
            if name.startswith(f"{table}_") and _stop(table, name) <= moment:
                connection.execute(statement("drop_partition", f"DROP TABLE {name}"))
                dropped.append(name)
    return dropped


def days_that_end_before(connection: Connection, tables: Sequence[str], moment: datetime) -> list[datetime]:
    """Returns the days of the daily `tables` that end at `moment` or before, oldest first."""
    stops = {_stop(table, name) for table in tables for name in _existing(connection) if name.startswith(f"{table}_")}
    return sorted(stop - timedelta(days=1) for stop in stops if stop <= moment)


def partition_days(connection: Connection) -> list[str]:
    """Returns a day of each existing partition, in the form that `ensure` takes."""
    digits = {name.rpartition("_")[2] for name in _existing(connection)}
    return sorted(f"{part[:4]}-{part[4:6]}-{part[6:] or '01'}" for part in digits)


def _existing(connection: Connection) -> set[str]:
    return set(connection.execute(EXISTING, {"tables": list(DAILY + MONTHLY + MONEY)}).scalars())


def _stop(table: str, name: str) -> datetime:
    digits = name.removeprefix(f"{table}_")
    if table in DAILY:
        return datetime.strptime(digits, "%Y%m%d").replace(tzinfo=UTC) + timedelta(days=1)
    return (datetime.strptime(digits, "%Y%m").replace(tzinfo=UTC) + timedelta(days=32)).replace(day=1)
