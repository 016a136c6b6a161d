"""Housekeeping as the server runs it: what is old goes, what is over is rolled up, a second look changes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from typing import Any

import msgspec
import pytest
from sqlalchemy import Connection, text

from agents.contract.reports import Report
from app.context import Context
from app.housekeeping import Housekeeping
from app.main import assemble
from app.manifests.reader import Document
from app.manifests.validate import validate
from app.nodes.reporting_condition import SYSTEM
from app.settings import Settings
from app.store.database import clock
from app.store.database import partitions as partition_tables
from app.store.money import packed_minutes, usage
from app.world.declare import declare
from tests.support.patience import until
from tests.support.reports import report
from tests.support.world import gpu_type, node

pytestmark = pytest.mark.slow


@pytest.fixture
def context(database_url: str) -> Iterator[Context]:
    settings = Settings(database_url=database_url, database_direct=True, telemetry_retention_days=3)
    made: Context = assemble(settings).state.context
    yield made
    made.parser.close()
    made.database.close()


@pytest.fixture
def housekeeping(context: Context) -> Housekeeping:
    """Begins past a midnight that is near: tables of days are made and dropped by the database's own date."""
    same_day = "(now() AT TIME ZONE 'UTC')::date = ((now() + interval '1 minute') AT TIME ZONE 'UTC')::date"
    until(lambda: run(context, f"SELECT {same_day}")[0][0], "it is past midnight")
    return Housekeeping(context)


def run(context: Context, sql: str) -> list[Any]:
    def execute(connection: Any) -> list[Any]:
        result = connection.execute(text(sql))
        return list(result) if result.returns_rows else []

    return context.database.write(execute)


# The last day whose minutes are packed: 25 hours after its end, so in the first hour of a day it is another one.
FINAL_DAY = "(date_trunc('day', now() - interval '25 hours', 'UTC') - interval '1 day')"


def read_days_since(context: Context) -> int:
    """Returns how many days ago the last day was whose minutes are packed."""
    ((seconds,),) = run(context, f"SELECT extract(epoch FROM date_trunc('day', now(), 'UTC') - {FINAL_DAY})")
    return round(float(seconds) / 86_400)


def partitions(context: Context) -> set[str]:
    rows = run(context, "SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = 'gpu_minute'::regclass")
    return {row[0] for row in rows}


def days(context: Context, *offsets: int) -> set[str]:
    wanted = ", ".join(f"to_char(now() AT TIME ZONE 'UTC' + interval '{n} days', 'YYYYMMDD')" for n in offsets)
    return {f"gpu_minute_{day}" for day in run(context, f"SELECT {wanted}")[0]}


def test_past_hours_of_load_become_a_row_each_and_old_ones_go(context: Context, housekeeping: Housekeeping) -> None:
    run(
        context,
        """
        INSERT INTO service_load (tenant, service, at, seconds, requests, answers)
        SELECT 'shop', 'search', date_trunc('hour', now()) - ago + n * interval '10 seconds', 10, 5, 4
        FROM unnest(ARRAY[interval '5 hours', interval '40 days']) AS ago, generate_series(1, 30) AS n
        """,
    )
    for _ in range(2):
        housekeeping.roll_up_loads()
    assert run(context, "SELECT 1 FROM service_load") == []
    assert run(context, "SELECT seconds, requests, answers FROM service_load_hour") == [(300, 150, 120)]


def test_partitions_are_there_before_they_are_needed(context: Context, housekeeping: Housekeeping) -> None:
    for _ in range(2):
        housekeeping.make_partitions()
    assert partitions(context) == days(context, -1, 0, 1, 2)


def test_telemetry_beyond_the_retention_is_dropped(context: Context, housekeeping: Housekeeping) -> None:
    housekeeping.make_partitions()
    old = days(context, -5)
    (name,) = old
    day = name.removeprefix("gpu_minute_")
    run(
        context,
        f"CREATE TABLE {name} PARTITION OF gpu_minute FOR VALUES FROM ('{day}Z') TO ('{day}Z'::timestamptz + "
        "interval '1 day')",
    )
    assert old <= partitions(context)
    housekeeping.drop_old_partitions()
    assert partitions(context) == days(context, -1, 0, 1, 2)


def test_minutes_of_past_days_are_packed_and_read_as_before(context: Context, housekeeping: Housekeeping) -> None:
    housekeeping.make_partitions()
    since, day = read_days_since(context), FINAL_DAY
    context.database.write(lambda c: partition_tables.ensure(c, [clock.now(c) - timedelta(days=since)]))
    run(
        context,
        f"INSERT INTO gpu_minute SELECT {day} + n * interval '1 minute', 'node-1', g, 1, 'ok', n, 1, 100, 150, "
        "n * 1000, 60, 1400, ARRAY['thermal', 'power'], '', false, '{\"requested\": {\"clockMhz\": 900}}' "
        "FROM generate_series(0, 1439, 7) AS n, generate_series(0, 1) AS g",
    )
    run(
        context,
        f"INSERT INTO instance_minute SELECT {day} + n * interval '1 minute', 'node-1', 'a-' || i, 1, i, 'shop', "
        "'search', '', 30, 2.5, n, 1, CASE WHEN n % 2 = 0 THEN '{}' ELSE ARRAY[n, 0, 3] END, 1.5, .1, n / 3.0, NULL, "
        "'server' "
        "FROM generate_series(0, 1439, 5) AS n, generate_series(0, 2) AS i",
    )
    before, drawn = read_minutes(context), read_energy(context)
    assert len(drawn) > 100
    run(context, f"INSERT INTO pending_hour VALUES ({day} + interval '3 hours', now())")
    housekeeping.pack_minutes()
    assert run(context, "SELECT FROM gpu_hour_minutes") == [], "an hour is not rolled up yet"
    run(context, "DELETE FROM pending_hour")
    (hour,) = run(context, f"SELECT {day} + interval '3 hours'")[0]
    assert context.database.write(lambda c: packed_minutes.pack(c, hour, ["node-1"])) == 2 + 3
    assert context.database.write(lambda c: packed_minutes.pack(c, hour, ["node-1"])) == 0, "it is packed already"
    assert (read_minutes(context), read_energy(context)) == (before, drawn), (
        "minutes that are there twice are read once"
    )
    assert not context.database.write(lambda c: packed_minutes.drop(c, hour.replace(hour=0)))
    assert read_minutes(context) == before, "not all of the day are packed yet"
    assert partitions(context) == days(context, -since, -1, 0, 1, 2)
    housekeeping.pack_minutes()
    assert run(context, "SELECT FROM gpu_minute") == run(context, "SELECT FROM instance_minute") == []
    assert partitions(context) == days(context, -1, 0, 1, 2)
    assert (read_minutes(context), read_energy(context)) == (before, drawn), "late accounts have their energy, too"
    run(context, "UPDATE instance_hour_minutes SET hour = hour - interval '2 days'")
    housekeeping.drop_old_partitions()
    assert run(context, "SELECT FROM instance_hour_minutes") == []


def test_minutes_outlive_later_days_until_both_their_tables_are_packed(
    context: Context, housekeeping: Housekeeping
) -> None:
    housekeeping.make_partitions()
    since = read_days_since(context)
    made = context.database.write(
        lambda c: partition_tables.ensure(c, [clock.now(c) - timedelta(days=n) for n in (since, since + 1)])
    )
    assert made
    (hour, next_day), *_ = run(context, f"SELECT {FINAL_DAY} - interval '1 day', {FINAL_DAY}")
    run(context, f"INSERT INTO gpu_minute SELECT '{hour}', 'node-1', 0, 1, 'ok', 0, 1, 90, 90, 1000, 60, 1400, '{{}}'")
    run(
        context,
        f"INSERT INTO instance_minute SELECT '{hour}', 'node-1', 'a-0', 1, 0, 'shop', 'search', '', 30, 2.5, 0, 1, "
        "'{}', 1.5, .1, 1",
    )
    context.database.write(lambda c: c.execute(packed_minutes.PACKS[0], {"hour": hour, "nodes": ["node-1"]}))
    assert not context.database.write(lambda c: packed_minutes.drop(c, next_day)), "the day before is not packed"
    assert days(context, -since - 1, -since) <= partitions(context)
    housekeeping.pack_minutes()
    for table in ("gpu_hour_minutes", "instance_hour_minutes"):
        assert run(context, f"SELECT node, hour FROM {table}") == [("node-1", hour)]
    assert partitions(context) == days(context, -1, 0, 1, 2)


def read_energy(context: Context) -> list[Any]:
    """Returns what the ledger knows of the energy of the last four days."""

    def read(connection: Connection) -> list[Any]:
        now = int(clock.now(connection).timestamp() * 1_000_000)
        return sorted(map(tuple, usage.energy(connection, "node-1", now - 4 * 86_400_000_000, now)))

    return context.database.read(read)


def read_minutes(context: Context) -> list[list[dict[str, Any]]]:
    """Returns what there is of a stretch that begins and ends within hours."""
    (day,) = run(context, f"SELECT {FINAL_DAY}")[0]
    start, stop = day + timedelta(minutes=95), day + timedelta(minutes=1111)
    reads = (packed_minutes.gpu_minutes, packed_minutes.instance_minutes)
    words: dict[str, Any] = {"node": "node-1", "start": start, "stop": stop, "limit": 10_000}
    return [context.database.read(partial(read, **words)) for read in reads]


def test_old_changes_go_and_the_floor_rises(context: Context, housekeeping: Housekeeping) -> None:
    run(context, "UPDATE version SET value = 12 WHERE name = 'object'")
    for version, hours in ((10, 48), (11, 25), (12, 1)):
        run(
            context,
            "INSERT INTO change (version, kind, tenant, name, uid, action, object, at) VALUES "
            f"({version}, 'Tenant', '', 'shop', gen_random_uuid(), 'added', '{{}}', now() - interval '{hours} hours')",
        )
    housekeeping.prune()
    assert run(context, "SELECT version FROM change") == [(12,)]
    assert run(context, "SELECT floor FROM version WHERE name = 'object'") == [(11,)]


def test_an_hour_that_is_over_is_rolled_up_once(context: Context, housekeeping: Housekeeping) -> None:
    housekeeping.make_partitions()
    hour = "date_trunc('hour', now() - interval '2 hours')"
    run(
        context,
        "INSERT INTO gpu_minute SELECT "
        f"{hour} + n * interval '1 minute', 'node-' || m, 0, 1, 'ok', 50, 1, 100, 150, n * 1000, 60, 1400, '{{}}' "
        "FROM generate_series(0, 59) AS n, generate_series(1, 45) AS m",
    )
    run(context, f"INSERT INTO pending_hour VALUES ({hour}, now() - interval '10 minutes')")
    for _ in range(2):
        housekeeping.roll_up_hours()
    rows = run(context, "SELECT minutes, energy_mj, utilization_percent FROM gpu_hour")
    assert rows == [(60, 59_000, 50)] * 45
    assert run(context, "SELECT gpu_minutes, busy_minutes FROM node_hour") == [(60, 30)] * 45
    assert run(context, "SELECT * FROM pending_hour") == []


def test_a_node_whose_hour_cannot_be_rolled_up_stops_no_other(context: Context, housekeeping: Housekeeping) -> None:
    housekeeping.make_partitions()
    hour = "date_trunc('hour', now() - interval '2 hours')"
    run(
        context,
        f"INSERT INTO gpu_minute SELECT {hour}, 'node-' || m, 0, 1, 'ok', 50, 1, 100, 150, 1000, 60, 1400, '{{}}' "
        "FROM generate_series(1, 5) AS m",
    )
    run(context, "ALTER TABLE gpu_hour ADD CHECK (node <> 'node-3')")
    run(context, f"INSERT INTO pending_hour VALUES ({hour}, now() - interval '10 minutes')")
    housekeeping.roll_up_hours()
    assert run(context, "SELECT node FROM gpu_hour ORDER BY node") == [(f"node-{n}",) for n in (1, 2, 4, 5)]
    assert run(context, "SELECT * FROM pending_hour") == []


def test_a_node_whose_devices_cannot_be_read_keeps_no_others_status_out_of_date(
    context: Context, housekeeping: Housekeeping
) -> None:
    documents = [Document("test", document) for document in (gpu_type(), node("node-1"), node("node-2"))]
    manifests, faults = validate(documents)
    assert not faults
    context.database.write(lambda connection: declare(connection, SYSTEM, manifests))
    for name in ("node-1", "node-2"):
        sent = report(name, 1, inventory={"gpus": [{"index": 0, "uuid": f"GPU-of-{name}"}]})
        context.nodes.intake.keep([msgspec.convert(sent, Report)], [b"{}"])
    run(context, "UPDATE node_inventory SET inventory = '{\"gpus\": 1}' WHERE node = 'node-1'")
    housekeeping.note_devices()
    rows = run(context, "SELECT name, status #>> '{gpus,0,uuid}' FROM object WHERE kind = 'Node' ORDER BY name")
    assert rows == [("node-1", None), ("node-2", "GPU-of-node-2")]


def test_an_hour_cut_short_by_a_stop_stays_pending(context: Context, housekeeping: Housekeeping) -> None:
    run(context, "INSERT INTO pending_hour VALUES ('2026-01-01T00:00Z', now() - interval '10 minutes')")
    housekeeping.start()
    housekeeping.stop()
    housekeeping.roll_up_hours()
    assert len(run(context, "SELECT * FROM pending_hour")) == 1


def test_a_job_that_fails_is_counted_and_the_others_go_on(context: Context, housekeeping: Housekeeping) -> None:
    run(context, "DROP TABLE pending_hour")
    housekeeping._guard(housekeeping.roll_up_hours)()
    housekeeping.make_partitions()
    assert partitions(context)
