"""Minutes of days that are over: one row an hour for each GPU and instance, whose columns are arrays, in a tenth of the
bytes; and the minutes of a node, whichever form they have."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import Connection, TextClause

from app.manifests.model import Free
from app.store.database import partitions
from app.store.database.database import statement

FINAL = timedelta(hours=25)  # after the end of a day: no report is taken that is older than a day


@dataclass(frozen=True, slots=True)
class _MinuteTable:
    """A table of minutes; `columns` have the types of their rows, in a pack each is an array."""

    name: str
    key: str
    columns: dict[str, str]

    @property
    def packed(self) -> str:
        return self.name.replace("_minute", "_hour_minutes")

    def pack(self) -> TextClause:
        """Returns the statement that packs an hour of some nodes, but of those whose hour is packed already."""
        arrays = ", ".join(f"array_agg({_flat(name, kind)} ORDER BY minute)" for name, kind in self.columns.items())
        return statement(
            f"pack_{self.name}",
            f"""
            INSERT INTO {self.packed} (hour, node, {self.key}, minutes, {", ".join(self.columns)})
            SELECT CAST(:hour AS timestamptz), node, {self.key},
                   array_agg(CAST(extract(minute FROM minute AT TIME ZONE 'UTC') AS smallint) ORDER BY minute), {arrays}
            FROM {self.name} AS line
            WHERE node = ANY(CAST(:nodes AS text[])) AND minute >= :hour AND minute < :hour + interval '1 hour'
                AND NOT node = ANY(ARRAY(SELECT DISTINCT pack.node FROM {self.packed} AS pack
                    WHERE pack.node = ANY(CAST(:nodes AS text[])) AND pack.hour = :hour))
            GROUP BY node, {self.key}
            """,
        )

    def select_minutes(self, start: str, stop: str, *columns: str) -> str:
        """Returns the SELECT of a node's minutes between two moments. While a day is packed, they are there twice."""
        names = ", ".join(columns)
        back = ", ".join(f"CAST(line.{name} AS {self.columns[name]}) AS {name}" for name in columns)
        return f"""
            SELECT minute, {self.key}, {names} FROM {self.name}
            WHERE node = :node AND minute >= {start} AND minute < {stop}
            UNION
            SELECT moment, {self.key}, {back}
            FROM {self.packed} AS pack, unnest({", ".join(f"pack.{name}" for name in ("minutes", *columns))})
                 AS line (minute, {names}), LATERAL (SELECT hour + line.minute * interval '1 minute' AS moment) AS at
            WHERE node = :node AND hour > {start} - interval '1 hour' AND hour < {stop}
                AND moment >= {start} AND moment < {stop}
            """

    def read(self) -> TextClause:
        """Returns the statement that reads a node's minutes, oldest first."""
        whole = self.select_minutes("CAST(:start AS timestamptz)", "CAST(:stop AS timestamptz)", *self.columns)
        return statement(f"{self.name}s_of_node", f"{whole} ORDER BY minute, {self.key} LIMIT :limit")

    def select_unpacked(self, stop: str) -> str:
        """Returns the SELECT of minutes before a moment that are not packed."""
        return f"""
            SELECT FROM {self.name} AS line WHERE minute < {stop} AND NOT EXISTS (
                SELECT FROM {self.packed} AS pack
                WHERE pack.node = line.node AND pack.hour = date_trunc('hour', line.minute, 'UTC'))
            """

    def forget(self) -> TextClause:
        return statement(f"forget_{self.packed}", f"DELETE FROM {self.packed} WHERE hour < :moment")


def _flat(name: str, kind: str) -> str:
    """Returns the column as an array can hold it: arrays of different lengths are texts."""
    return f"CAST({name} AS text)" if kind.endswith("[]") else name


GPUS = _MinuteTable(
    "gpu_minute",
    "gpu",
    {
        "health": "text",
        "utilization_percent": "double precision",
        "memory_used_gib": "double precision",
        "power_mean_w": "double precision",
        "power_peak_w": "double precision",
        "energy_counter_mj": "bigint",
        "temperature_c": "double precision",
        "sm_clock_mhz": "double precision",
        "throttle_reasons": "text[]",
        "reason": "text",
        "fenced": "boolean",
        "limits": "jsonb",
    },
)
INSTANCES = _MinuteTable(
    "instance_minute",
    "instance",
    {
        "gpu": "smallint",
        "tenant": "text",
        "service": "text",
        "job": "text",
        "sm_percent": "double precision",
        "memory_gib": "double precision",
        "requests": "bigint",
        "errors": "bigint",
        "latency_counts": "bigint[]",
        "batch_mean": "double precision",
        "queue_mean": "double precision",
        "busy_seconds": "double precision",
        "limits": "jsonb",
        "source": "text",
        "steps": "double precision",
        "tokens_in": "bigint",
        "tokens_out": "bigint",
        "paced": "bigint",
        "pace_late": "bigint",
    },
)
PACKS = (GPUS.pack(), INSTANCES.pack())
OF_NODE, INSTANCES_OF_NODE = GPUS.read(), INSTANCES.read()
FORGETS = (GPUS.forget(), INSTANCES.forget())
# With the minutes of all days before: the partitions of these are dropped with that of the day.
_STOP = "CAST(:stop AS timestamptz)"
UNPACKED = statement(
    "minutes_to_pack",
    f"SELECT EXISTS ({GPUS.select_unpacked(_STOP)}) OR EXISTS ({INSTANCES.select_unpacked(_STOP)})",
)
# The first hour of the next day is rolled up with the last counters of this one.
WAITING = statement(
    "minutes_that_wait",
    """
    SELECT EXISTS (SELECT FROM pending_hour WHERE hour <= :moment)
        OR EXISTS (SELECT FROM report_minute WHERE minute < :moment)
    """,
)


def due_days(connection: Connection, now: datetime) -> list[datetime]:
    """Returns the days whose minutes are final, all reported and rolled up, and not packed yet."""
    days = partitions.days_that_end_before(connection, partitions.DAILY, now - FINAL)
    return [day for day in days if not connection.execute(WAITING, {"moment": day + timedelta(days=1)}).scalar_one()]


def hours_of(day: datetime) -> Iterator[datetime]:
    return (day + timedelta(hours=n) for n in range(24))


def pack(connection: Connection, hour: datetime, nodes: Sequence[str]) -> int:
    """Packs an hour of some nodes, whose minutes stay; returns how many packs it made."""
    words = {"hour": hour, "nodes": list(nodes)}
    return sum(connection.execute(making, words).rowcount for making in PACKS)


def drop(connection: Connection, day: datetime) -> bool:
    """Drops the minutes of a day and of all days before, unless some of them are not packed; returns whether it did."""
    stop = day + timedelta(days=1)
    if connection.execute(UNPACKED, {"stop": stop}).scalar_one():
        return False
    partitions.drop_before(connection, partitions.DAILY, stop)
    return True


def forget(connection: Connection, moment: datetime) -> None:
    """Deletes the packs of older hours."""
    for forgetting in FORGETS:
        connection.execute(forgetting, {"moment": moment})


def gpu_minutes(connection: Connection, node: str, start: datetime, stop: datetime, limit: int) -> list[Free]:
    """Returns the minutes of a node's GPUs, oldest first."""
    found = connection.execute(OF_NODE, {"node": node, "start": start, "stop": stop, "limit": limit})
    return [dict(row) for row in found.mappings()]


def instance_minutes(connection: Connection, node: str, start: datetime, stop: datetime, limit: int) -> list[Free]:
    """Returns the minutes of a node's instances, oldest first."""
    found = connection.execute(INSTANCES_OF_NODE, {"node": node, "start": start, "stop": stop, "limit": limit})
    return [dict(row) for row in found.mappings()]
