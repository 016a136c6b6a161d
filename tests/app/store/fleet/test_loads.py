"""What planners hear from the database, and what leaders keep there."""

from __future__ import annotations

import zlib
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from sqlalchemy import Connection, text

from agents.contract.gateways import GatewayCounts, ServiceCounts
from app.control.observe.loads.loads import Loads
from app.control.observe.loads.reports import ReportCursor
from app.store.database.database import Database
from app.store.fleet import gateways, loads
from app.store.fleet.loads import LoadBucket
from tests.support.gateway_counts import read_reports
from tests.support.reports import instance, report, this_minute


def put(database: Database, body: dict[str, Any] | bytes, node: str = "", sequence: int = 0) -> None:
    """A report as it lies there, received now."""
    raw = body if isinstance(body, bytes) else zlib.compress(msgspec.json.encode(body))
    row = {"minute": this_minute(), "node": node or body["node"], "ordinal": sequence or body["sequence"], "body": raw}  # type: ignore
    sql = """INSERT INTO report_minute VALUES (:minute, :node, :ordinal, now(), :body)
             ON CONFLICT (minute, node) DO UPDATE SET ordinal = excluded.ordinal, received_at = now(),
             body = excluded.body"""
    database.write(lambda connection: connection.execute(text(sql), row))


def bucket(ago: timedelta, **fields: Any) -> LoadBucket:
    known: dict[str, Any] = {
        "seconds": 10,
        "requests": 100.5,
        "errors": 1,
        "slow": 2.5,
        "latency_counts": [0, 99],
        "answers": 99,
    }
    return LoadBucket("shop", "search", datetime.now(UTC) - ago, **(known | fields))


def test_each_report_is_heard_once(database: Database) -> None:
    put(database, report("node-1", 1))
    put(database, report("node-2", 1))
    first = database.read(lambda connection: read_reports(connection, ReportCursor()))
    put(database, report("node-1", 2))
    second = database.read(lambda connection: read_reports(connection, first.cursor))
    third = database.read(lambda connection: read_reports(connection, second.cursor))
    assert sorted(one.report.node for one in first.reports) == ["node-1", "node-2"]
    assert [(one.report.node, one.report.sequence) for one in second.reports] == [("node-1", 2)]
    assert third.reports == []
    assert [one.report.instances[0].service for one in second.reports] == ["search"]


def test_a_report_that_showed_late_is_heard_all_the_same(database: Database) -> None:
    put(database, report("node-1", 1))
    first = database.read(lambda connection: read_reports(connection, ReportCursor()))
    put(database, report("node-2", 1))
    sql = "UPDATE report_minute SET received_at = received_at - interval '2 seconds' WHERE node = 'node-2'"
    database.write(lambda connection: connection.execute(text(sql)))
    second = database.read(lambda connection: read_reports(connection, first.cursor))
    assert [one.report.node for one in second.reports] == ["node-2"]


def test_what_is_long_past_is_not_heard_any_more(database: Database) -> None:
    put(database, report("node-1", 1))
    sql = "UPDATE report_minute SET received_at = received_at - interval '1 hour'"
    database.write(lambda connection: connection.execute(text(sql)))
    assert database.read(lambda connection: read_reports(connection, ReportCursor())).reports == []


def test_what_cannot_be_read_is_counted_and_hides_nothing(database: Database) -> None:
    put(database, b"no report", "node-1", 1)
    put(
        database,
        zlib.compress(b'{"node": "node-2", "instances": [{"id": "i", "gpu": 0, "requests": NaN}]}'),
        "node-2",
        1,
    )
    put(database, report("node-3", 1))
    readings = database.read(lambda connection: read_reports(connection, ReportCursor()))
    assert (readings.unreadable, [one.report.node for one in readings.reports]) == (2, ["node-3"])


def test_gateways_are_heard_with_nodes(database: Database) -> None:
    said = GatewayCounts("a", 1, (ServiceCounts("shop/search", 10),))
    database.write(lambda connection: gateways.keep(connection, "gw-1", said))
    readings = database.read(lambda connection: read_reports(connection, ReportCursor()))
    again = database.read(lambda connection: read_reports(connection, readings.cursor))
    assert [(one.gateway, one.counts.services[0].requests) for one in readings.gateways] == [("gw-1", 10)]
    assert again.gateways == []


def test_loads_follow_what_is_in_the_database(database: Database) -> None:
    known = Loads()
    minute = this_minute()
    for sequence, second in enumerate((10, 20), start=1):
        at = (minute + timedelta(seconds=second)).isoformat()
        put(database, report("node-1", sequence, minute, at=at, instances=[instance(requests=30 * second)]))
        known.take(database.read(lambda connection: read_reports(connection, known.cursor)))
    recent = known.recent("shop/search")
    assert recent is not None
    assert recent.rate_per_second == pytest.approx(30)


def test_buckets_are_kept_once_and_read_as_a_course(database: Database) -> None:
    buckets = [bucket(timedelta(seconds=ago)) for ago in (30, 20, 10)]
    for _ in range(2):
        database.repeatable(lambda connection: loads.keep(connection, buckets))
    (course,) = database.read(lambda connection: loads.histories(connection, timedelta(minutes=30)))
    assert (course.service, course.seconds, course.requests) == ("shop/search", [10.0] * 3, [100.5] * 3)
    assert course.ats == sorted(course.ats)
    assert course.observed_seconds == 30


def roll_up(database: Database) -> None:
    while database.write(lambda connection: loads.roll_up(connection, 1)):
        pass


def test_hours_that_are_over_are_one_row_and_lose_nothing(database: Database) -> None:
    old = [bucket(timedelta(hours=10, seconds=10 * number)) for number in range(100)]
    database.repeatable(lambda connection: loads.keep(connection, [*old, bucket(timedelta(seconds=5))]))
    before = database.read(lambda connection: loads.answers_within(connection, timedelta(days=1)))
    for _ in range(2):
        roll_up(database)
    late = bucket(timedelta(hours=10, seconds=5))
    database.repeatable(lambda connection: loads.keep(connection, [late]))
    roll_up(database)
    (after,) = database.read(lambda connection: loads.answers_within(connection, timedelta(days=1)))
    assert (before[0].requests, before[0].answers, before[0].errors, before[0].slow) == (101 * 100.5, 9999, 101, 252.5)
    assert (after.requests, after.answers, after.errors, after.slow) == (102 * 100.5, 102 * 99, 102, 255)
    left = database.read(lambda connection: loads.histories(connection, timedelta(days=1)))
    assert [len(course.ats) for course in left] == [1]


def test_hours_that_no_window_reaches_are_dropped(database: Database) -> None:
    database.repeatable(lambda connection: loads.keep(connection, [bucket(timedelta(days=40))]))
    roll_up(database)
    database.write(lambda connection: loads.forget(connection, 100))
    assert database.read(lambda connection: loads.answers_within(connection, timedelta(days=60))) == []


@pytest.mark.slow
def test_an_hour_is_found_by_index_however_many_wait(database: Database) -> None:
    sql = """
        INSERT INTO service_load (tenant, service, at, seconds, requests, answers)
        SELECT 'shop', 's-' || s, now() - n * interval '1 minute', 60, 5, 4
        FROM generate_series(1, 300) AS n, generate_series(1, 300) AS s
    """

    def plan(connection: Connection, hour: datetime) -> str:
        rows = connection.execute(text(f"EXPLAIN {loads.ROLL_UP.text}"), {"services": 100, "hour": hour})
        return "\n".join(row[0] for row in rows)

    database.write(lambda connection: connection.execute(text(sql)))
    database.write(lambda connection: connection.execute(text("ANALYZE service_load")))
    hour = database.read(
        lambda connection: connection.execute(loads.OLDEST_HOUR, {"after": timedelta(hours=2)}).scalar_one()
    )
    found = database.read(lambda connection: plan(connection, hour))
    assert found.count(" service_load_at") == 2, found
