"""Finished minutes become rows once, in any number of replicas, and late ones are put right."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from sqlalchemy import text

from app.nodes import expansion
from app.nodes.pace import WorkPace
from app.store.database import partitions
from app.store.database.database import Database
from app.store.money import rollups
from tests.support.postgres import GivenDatabase
from tests.support.reports import ASSIGNED, instance, report, this_minute

pytestmark = pytest.mark.slow

HOUR = this_minute().replace(minute=0) - timedelta(hours=3)


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    opened = Database(database_url, pool_size=4, direct=True)
    yield opened
    opened.close()


def expand_finished(database: Database) -> int:
    return expansion.expand_finished(database, WorkPace(pause_factor=0))


def put(database: Database, body: dict[str, Any], quiet_seconds: float = 60) -> None:
    """A report as it lies there when its minute is over; its sequence is its ordinal."""
    database.write(
        lambda connection: connection.execute(
            text(
                "INSERT INTO report_minute VALUES (:minute, :node, :ordinal, "
                "now() - make_interval(secs => :quiet), :body)"
            ),
            {
                "minute": datetime.fromisoformat(body["minute"]),
                "node": body["node"],
                "ordinal": body["sequence"],
                "quiet": quiet_seconds,
                "body": zlib.compress(msgspec.json.encode(body)),
            },
        )
    )


def rows(database: Database, sql: str) -> list[Any]:
    return database.read(lambda connection: list(connection.execute(text(sql))))


def count(database: Database, table: str) -> int:
    return int(rows(database, f"SELECT count(*) FROM {table}")[0][0])


def test_a_minute_keeps_who_counted_how_far_a_job_came_and_how_a_gpu_was_set(database: Database) -> None:
    instances = [instance("a", source="server-side"), instance("b", service="", job="train", steps=120.5)]
    clock = {"requested": {"clockMhz": 1200}, "applied": {"clockMhz": 1185}}
    gpus = [{"index": 0, "health": "failed", "reason": "xid_79", "fenced": True, **clock}]
    put(database, report("node-1", 4, HOUR, gpus=gpus, instances=instances))
    assert expand_finished(database) == 1
    (gpu,) = rows(database, "SELECT * FROM gpu_minute")
    assert (gpu.health, gpu.reason, gpu.fenced, gpu.limits) == ("failed", "xid_79", True, clock)
    a, b = rows(database, "SELECT * FROM instance_minute ORDER BY instance")
    assert (a.source, a.steps, b.source, b.steps) == ("server-side", 0, "", 120.5)
    put(database, report("node-1", 5, HOUR, gpus=[{"index": 0}], instances=[instance("a", source="gateway")]))
    assert expand_finished(database) == 1
    (gpu,) = rows(database, "SELECT * FROM gpu_minute")
    assert (gpu.health, gpu.reason, gpu.fenced, gpu.limits) == ("ok", "", False, None)
    assert rows(database, "SELECT source FROM instance_minute WHERE instance = 'a'") == [("gateway",)]


def test_a_minute_becomes_one_row_a_gpu_and_instance(database: Database) -> None:
    limits = {"requested": {"smPercent": 30}, "measured": {"smPercent": 29.5}}
    instances = [instance("a", **limits), instance("b", gpu=1, service="", job="train", latencyCounts=[])]
    gpus = [{"index": 0, "powerMeanW": 120.5, "throttleReasons": ["hw_slowdown"]}, {"index": 1}]
    put(database, report("node-1", 4, HOUR, gpus=gpus, instances=instances))
    assert expand_finished(database) == 1
    gpu, other = rows(database, "SELECT * FROM gpu_minute ORDER BY gpu")
    assert (gpu.minute, gpu.power_mean_w, gpu.throttle_reasons) == (HOUR, 120.5, ["hw_slowdown"])
    assert (other.health, other.power_mean_w) == ("ok", 0)
    a, b = rows(database, "SELECT * FROM instance_minute ORDER BY instance")
    assert (a.service, a.requests, a.latency_counts, a.limits) == ("search", 10, [0, 4, 6], limits)
    assert (b.job, b.gpu, b.latency_counts, b.limits) == ("train", 1, [], None)
    assert (a.source, b.steps, gpu.reason, gpu.fenced, gpu.limits) == ("", 0, "", False, None)
    assert count(database, "report_minute") == 0


def test_the_fleet_has_each_gpus_minute_once_however_often_it_is_reported(database: Database) -> None:
    busy = {"utilizationPercent": 50.0, "powerMeanW": 200.0}
    for node in ("node-1", "node-2"):
        put(database, report(node, 4, HOUR, gpus=[{"index": 0, **busy}, {"index": 1, **busy}]))
    expand_finished(database)
    put(database, report("node-2", 5, HOUR, gpus=[{"index": 0, **busy}, {"index": 1, **busy}]))
    put(database, report("node-3", 1, HOUR, gpus=[{"index": 0, "utilizationPercent": 100.0, "powerMeanW": 1e9}]))
    expand_finished(database)
    assert rows(database, "SELECT * FROM fleet_minute") == [
        (HOUR, None, None, None, 5, 3.0, 800.0, None, None, None)
    ], "impossible power is not believed"


def test_a_minute_that_still_receives_reports_is_left(database: Database) -> None:
    put(database, report("node-1", 1, HOUR), quiet_seconds=2)
    put(database, report("node-2", 1, this_minute()))
    assert expand_finished(database) == 0
    assert count(database, "report_minute") == 2


def test_a_late_report_replaces_only_what_is_older(database: Database) -> None:
    put(database, report("node-1", 5, HOUR, instances=[instance(requests=50)]))
    expand_finished(database)
    put(database, report("node-1", 3, HOUR, instances=[instance(requests=30)]))
    expand_finished(database)
    assert rows(database, "SELECT requests FROM instance_minute") == [(50,)]
    put(database, report("node-1", 6, HOUR, instances=[instance(requests=60)]))
    expand_finished(database)
    assert rows(database, "SELECT requests FROM instance_minute") == [(60,)]


def test_replicas_share_the_work_and_do_it_once(each_database: GivenDatabase) -> None:
    database = Database(each_database.url, pool_size=4, direct=each_database.direct)
    for number in range(90):
        put(database, report(f"node-{number}", 1, HOUR + timedelta(minutes=number % 3)))
    with ThreadPoolExecutor(4) as threads:
        expanded = list(threads.map(lambda _: expand_finished(database), range(4)))
    assert sum(expanded) == 90
    assert (count(database, "gpu_minute"), count(database, "instance_minute")) == (90, 90)
    database.close()


def test_numbers_at_the_edge_of_what_is_taken_can_be_stored(database: Database) -> None:
    tiny, huge = 5e-324, 1e12
    gpus = [{"index": 0, "powerMeanW": tiny, "powerPeakW": huge, "energyCounterMj": 2**63 - 1}]
    extreme = instance(requests=10**12, latencyCounts=[10**12] * 61, batchMean=tiny, busySeconds=huge)
    put(database, report("node-1", 1, HOUR, gpus=gpus, instances=[extreme]))
    assert expand_finished(database) == 1
    assert rows(database, "SELECT power_mean_w, power_peak_w FROM gpu_minute") == [(tiny, huge)]
    for hour, _ in [(HOUR, None)]:
        database.write(lambda connection, hour=hour: rollups.roll_up(connection, hour, ["node-1"]))  # type: ignore[misc]
    assert rows(database, "SELECT requests FROM instance_hour") == [(10**12,)]


def test_a_counter_that_lies_takes_nothing_from_the_hour_of_the_others(database: Database) -> None:
    for number in range(6):
        minute = HOUR + timedelta(minutes=number)
        lie = [{"index": 0, "energyCounterMj": 2**63 - 1 if number % 2 else number}]  # up and down: more than fits
        put(database, report("node-1", number + 1, minute, gpus=lie))
        put(database, report("node-2", number + 1, minute, gpus=[{"index": 0, "energyCounterMj": 1000 + 500 * number}]))
    expand_finished(database)
    database.write(lambda connection: rollups.roll_up(connection, HOUR, ["node-1", "node-2"]))
    found = rows(database, "SELECT node, minutes, energy_mj FROM gpu_hour ORDER BY node")
    assert found == [("node-1", 6, 2 + 4), ("node-2", 6, 2500)]


def test_a_minute_that_cannot_be_stored_is_given_up_and_the_others_are_kept(database: Database) -> None:
    put(database, report("node-1", 1, HOUR))
    put(database, report("node-2", 1, HOUR))
    database.write(lambda c: c.execute(text("UPDATE report_minute SET body = 'not compressed' WHERE node = 'node-1'")))
    expand_finished(database)
    assert rows(database, "SELECT node FROM gpu_minute") == [("node-2",)]
    assert count(database, "report_minute") == 0


def test_a_day_of_old_minutes_of_one_node_delays_no_minute_of_another(database: Database) -> None:
    fresh = this_minute() - timedelta(minutes=3)
    for number in range(2 * expansion.NODES_AT_ONCE):
        put(database, report("node-1", number, fresh - timedelta(hours=2, minutes=number)))
    put(database, report("node-2", 1, fresh))
    partitions_of = {fresh, fresh - timedelta(hours=4)}
    database.write(lambda connection: partitions.ensure(connection, sorted(partitions_of)))
    database.write(lambda connection: expansion._portion(connection, expansion.NODES_AT_ONCE))
    found = rows(database, "SELECT DISTINCT minute FROM gpu_minute WHERE node = 'node-2'")
    assert [minute for (minute,) in found] == [fresh]
    expand_finished(database)
    assert count(database, "report_minute") == 0


def test_an_hour_is_the_sum_of_its_minutes(database: Database) -> None:
    counters = [1000, 1500, 100, 400]  # falls once: the driver was reloaded
    put(database, report("node-1", 1, HOUR - timedelta(minutes=1), gpus=[{"index": 0, "energyCounterMj": 900}]))
    for number, counter in enumerate(counters):
        gpus = [{"index": 0, "energyCounterMj": counter, "powerMeanW": 100 + number, "powerPeakW": 200}]
        one = instance(requests=number, latencyCounts=[1] * number, busySeconds=1.5)
        put(database, report("node-1", number + 2, HOUR + timedelta(minutes=number), gpus=gpus, instances=[one]))
    expand_finished(database)
    database.write(lambda connection: rollups.roll_up(connection, HOUR, ["node-1"]))
    database.write(lambda connection: rollups.roll_up(connection, HOUR, ["node-1"]))
    (gpu,) = rows(database, "SELECT * FROM gpu_hour")
    assert (gpu.hour, gpu.minutes, gpu.power_mean_w) == (HOUR, 4, 101.5)
    assert gpu.energy_mj == 100 + 500 + 100 + 300
    (node,) = rows(database, "SELECT * FROM node_hour")
    assert node == (HOUR, "node-1", 4, 4 * gpu.utilization_percent / 100, 4 * gpu.memory_used_gib, 406)
    (one,) = rows(database, "SELECT * FROM instance_hour")
    assert (one.minutes, one.requests, one.latency_counts, one.busy_seconds) == (4, 6, [3, 2, 1], 6.0)


def test_an_hour_waits_until_its_minutes_stop_coming(database: Database) -> None:
    put(database, report("node-1", 1, HOUR))
    expand_finished(database)
    assert database.read(rollups.pending_hours) == []
    time_passes(database)
    (pending,) = database.read(rollups.pending_hours)
    assert pending.hour == HOUR
    put(database, report("node-1", 2, HOUR + timedelta(minutes=1)))
    expand_finished(database)
    database.write(lambda connection: rollups.mark_done(connection, pending))
    assert count(database, "pending_hour") == 1, "minutes came in while the hour was rolled up"


def time_passes(database: Database, touched: str = "touched_at", noted: str = "nodes_at") -> None:
    earlier = "UPDATE pending_hour SET touched_at = {} - interval '5 minutes', nodes_at = {} - interval '5 minutes'"
    database.write(lambda c: c.execute(text(earlier.format(touched, noted))))


def pending_nodes(database: Database) -> list[str]:
    (pending,) = database.read(rollups.pending_hours)
    return database.read(lambda connection: rollups.nodes(connection, pending))


def test_late_minutes_of_a_node_have_only_its_own_hour_rolled_up_again(database: Database) -> None:
    for node in ("node-1", "node-2"):
        put(database, report(node, 1, HOUR))
    expand_finished(database)
    time_passes(database)
    assert pending_nodes(database) == ["node-1", "node-2"]
    (pending,) = database.read(rollups.pending_hours)
    database.write(lambda connection: rollups.mark_done(connection, pending))
    for sequence, minute in ((2, HOUR + timedelta(minutes=1)), (3, HOUR + timedelta(minutes=2))):
        put(database, report("node-1", sequence, minute))
        expand_finished(database)
    time_passes(database)
    assert pending_nodes(database) == ["node-1"]


def test_an_hour_that_a_server_of_the_version_before_touched_is_rolled_up_for_all_nodes(database: Database) -> None:
    for node in ("node-1", "node-2"):
        put(database, report(node, 1, HOUR))
    expand_finished(database)
    time_passes(database, "nodes_at + interval '1 second'")
    assert pending_nodes(database) == ["node-1", "node-2"]
    put(database, report("node-1", 2, HOUR + timedelta(minutes=1)))
    expand_finished(database)
    time_passes(database)
    assert pending_nodes(database) == ["node-1", "node-2"]


def test_minutes_of_instances_that_a_node_was_not_assigned_are_stored_up_to_a_number(database: Database) -> None:
    strange = [instance(f"strange-{number}") for number in range(2 * expansion.MOST_STRANGE)]
    own = [instance(f"own-{number}") for number in range(3)]
    for one in own:
        values = {"node": "node-1", "instance": one["id"], "tenant": "shop", "service": "search"}
        database.write(lambda c, values=values: c.execute(text(ASSIGNED), values))  # type: ignore[misc]
    put(database, report("node-1", 1, HOUR, instances=strange + own))
    put(database, report("node-2", 1, HOUR, instances=strange[: expansion.MOST_STRANGE]))
    expand_finished(database)
    found = rows(
        database,
        "SELECT node, count(*), count(*) FILTER (WHERE instance LIKE 'own%') FROM instance_minute "
        "GROUP BY node ORDER BY node",
    )
    assert found == [("node-1", expansion.MOST_STRANGE + 3, 3), ("node-2", expansion.MOST_STRANGE, 0)]


def test_partitions_are_made_once_and_dropped_whole(each_database: GivenDatabase) -> None:
    database = Database(each_database.url, pool_size=4, direct=each_database.direct)
    days = [datetime(2026, 1, 31, 23, 59, tzinfo=UTC), datetime(2026, 2, 1, tzinfo=UTC)]
    with ThreadPoolExecutor(4) as threads:
        made = list(threads.map(lambda _: database.write(lambda c: partitions.ensure(c, days)), range(4)))
    assert sorted(name for names in made for name in names) == [
        "allocation_202601",
        "allocation_202602",
        "cost_hour_202601",
        "cost_hour_202602",
        "gpu_hour_202601",
        "gpu_hour_202602",
        "gpu_minute_20260131",
        "gpu_minute_20260201",
        "instance_hour_202601",
        "instance_hour_202602",
        "instance_minute_20260131",
        "instance_minute_20260201",
    ]
    edge = datetime(2026, 2, 1, tzinfo=UTC)
    dropped = database.write(lambda c: partitions.drop_before(c, partitions.DAILY, edge))
    assert sorted(dropped) == ["gpu_minute_20260131", "instance_minute_20260131"]
    dropped = database.write(lambda c: partitions.drop_before(c, partitions.MONTHLY, edge))
    assert sorted(dropped) == ["gpu_hour_202601", "instance_hour_202601"]
    database.close()
