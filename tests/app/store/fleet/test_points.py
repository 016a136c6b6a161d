"""What charts of time read: means over steps, gaps where nothing is known, and only what is the caller's."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import Connection, text

from app.console.charts.ranges import RANGES
from app.console.charts.reading import read_fleet_charts
from app.store.database import partitions
from app.store.database.database import Database
from app.store.fleet import fleet_minutes, late_minutes, latency_points, load_points, loads
from app.store.fleet.fleet_minutes import FleetCost
from app.store.fleet.late_minutes import AnsweredSpan
from app.store.fleet.latency_points import LatencyPoint
from app.store.fleet.load_points import HourAhead, LoadPoint
from app.store.fleet.loads import LoadBucket
from app.store.money import cost_days
from app.store.money.cost_days import DayCost
from app.store.plans import change_points
from app.store.plans.change_points import ChangePoint

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)
MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)


@pytest.fixture
def connection(database_url: str) -> Iterator[Connection]:
    database = Database(database_url, pool_size=1, direct=True)
    with database.engine.connect() as connection:
        yield at(connection, NOON)
    database.close()


def at(connection: Connection, moment: datetime) -> Connection:
    connection.execute(text("SELECT set_config('gpuwright.moment', :moment, false)"), {"moment": moment.isoformat()})
    return connection


def bucket(ago: timedelta, service: str = "search", tenant: str = "shop", **fields: Any) -> LoadBucket:
    known: dict[str, Any] = {
        "seconds": 10.0, "requests": 100.0, "errors": 0, "slow": 5.0, "latency_counts": [], "answers": 100.0,
        "planned": 120.0,
    }  # fmt: skip
    return LoadBucket(tenant, service, NOON - ago, **(known | fields))


def test_the_cost_of_a_minute_is_that_of_its_last_cycle_and_a_step_has_the_mean_of_its_minutes(
    connection: Connection,
) -> None:
    for second, held in ((0, 9.0), (30, 10.0), (70, 20.0), (3600, 30.0)):
        cost = FleetCost(held, held - 1, held - 2 if second < 3600 else None)
        fleet_minutes.keep_cost(at(connection, NOON + timedelta(seconds=second)), cost)
    assert fleet_minutes.read_oldest(connection) == NOON
    found = fleet_minutes.points(connection, NOON, NOON + 2 * HOUR, 10 * MINUTE)
    assert [(point.begins, point.held_cost, point.planned_cost, point.bound) for point in found] == [
        (NOON, 15.0, 14.0, 13.0),
        (NOON + HOUR, 30.0, 29.0, None),
    ]
    assert {(point.busy, point.power_w, point.attained) for point in found} == {(None, None, None)}


def test_a_bucket_counts_once_for_the_fleet_and_errors_are_not_answered_in_time(connection: Connection) -> None:
    kept = [bucket(2 * MINUTE), bucket(2 * MINUTE, "other", errors=100, slow=0.0)]
    loads.keep(connection, kept)
    loads.keep(connection, [*kept, bucket(MINUTE, "other", answers=0.0, slow=0.0)])
    found = fleet_minutes.points(connection, NOON - HOUR, NOON, MINUTE)
    assert [(point.begins, point.attained) for point in found] == [
        (NOON - 2 * MINUTE, 195 / 300),
        (NOON - MINUTE, None),
    ]


def test_minutes_of_gpus_count_once_all_nodes_had_time_to_report_them(connection: Connection) -> None:
    for ago, busy in ((10, 3.0), (9, 1.0), (2, 0.5)):
        connection.execute(
            text("INSERT INTO fleet_minute (minute, gpus, busy_gpus, power_w) VALUES (:minute, 4, :busy, 1000)"),
            {"minute": NOON - ago * MINUTE, "busy": busy},
        )
    found = fleet_minutes.points(connection, NOON - HOUR, NOON, MINUTE)
    assert [(point.busy, point.power_w) for point in found] == [(0.75, 1000), (0.25, 1000), (None, None)]


def test_a_step_has_the_mean_edges_of_its_forecasts_also_once_its_hour_is_one_row(connection: Connection) -> None:
    early, late = 4 * HOUR - 10 * MINUTE, 4 * HOUR - 20 * MINUTE
    loads.keep(connection, [
        bucket(early, low=80.0, high=130.0, bands=1, bands_held=1), bucket(late, low=90.0, high=110.0, bands=1),
        bucket(HOUR),
    ])  # fmt: skip

    def points() -> list[LoadPoint]:
        return load_points.read_service_points(connection, "shop", "search", NOON - 6 * HOUR, NOON, HOUR)

    before = points()
    assert [(point.low, point.high, point.bands, point.bands_held) for point in before] == [
        (8.5, 12.0, 2, 1),
        (None, None, 0, 0),
    ]
    assert loads.roll_up(connection, 10) == 1
    assert points() == before


def test_hours_ahead_are_those_of_the_newest_forecast_that_have_not_begun(connection: Connection) -> None:
    rates = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0]
    loads.keep(connection, [bucket(90 * MINUTE, hours_ahead=rates), bucket(MINUTE)])
    found = load_points.read_hours_ahead(connection, "shop", "search", NOON + MINUTE)
    assert found == [HourAhead(NOON + HOUR, 7.0, 8.0, 9.0)], "the hours from 11 and from 12 have begun"
    assert load_points.read_hours_ahead(connection, "shop", "search", NOON + HOUR) == []


def test_minutes_that_no_chart_reaches_are_forgotten(connection: Connection) -> None:
    for days in (33, 31, 0):
        fleet_minutes.keep_cost(at(connection, NOON - timedelta(days=days)), FleetCost(1.0, 1.0, 1.0))
    at(connection, NOON)
    assert (fleet_minutes.forget(connection, 10), fleet_minutes.forget(connection, 10)) == (1, 0)


def test_a_service_has_its_rate_and_planned_rate_before_and_after_its_buckets_become_hours(
    connection: Connection,
) -> None:
    loads.keep(connection, [bucket(0 * MINUTE), bucket(10 * MINUTE, requests=300.0), bucket(4 * HOUR)])
    loads.keep(connection, [bucket(10 * MINUTE, "other"), bucket(10 * MINUTE, tenant="lab")])
    before = load_points.read_service_points(connection, "shop", "search", NOON - 24 * HOUR, NOON, HOUR)
    assert before == [
        LoadPoint(NOON - 5 * HOUR, 10.0, 12.0, 0.95),  # it ended at 8:00
        LoadPoint(NOON - HOUR, 20.0, 12.0, 0.95),
    ]
    roll_up(connection)
    assert load_points.read_service_points(connection, "shop", "search", NOON - 24 * HOUR, NOON, HOUR) == before
    fine = load_points.read_service_points(connection, "shop", "search", NOON - HOUR, NOON, MINUTE)
    assert [point.begins for point in fine] == [NOON - 11 * MINUTE, NOON - MINUTE]


def roll_up(connection: Connection) -> None:
    while loads.roll_up(connection, 10):
        pass


def test_what_is_added_to_an_hour_later_counts_in_its_planned_rate(connection: Connection) -> None:
    for minutes, planned in ((0, 120.0), (1, 360.0)):
        loads.keep(connection, [bucket(4 * HOUR + minutes * MINUTE, planned=planned)])
        roll_up(connection)
    [point] = load_points.read_service_points(connection, "shop", "search", NOON - 24 * HOUR, NOON, HOUR)
    assert (point.rate, point.planned) == (10.0, 24.0)


def test_an_hour_with_a_bucket_without_a_planned_rate_has_none(connection: Connection) -> None:
    loads.keep(connection, [bucket(4 * HOUR + MINUTE), bucket(4 * HOUR, planned=None)])
    roll_up(connection)
    loads.keep(connection, [bucket(4 * HOUR + 2 * MINUTE)])
    roll_up(connection)
    [point] = load_points.read_service_points(connection, "shop", "search", NOON - 24 * HOUR, NOON, HOUR)
    assert (point.rate, point.planned) == (10.0, None)


def test_a_tenant_sees_how_its_own_services_answered_and_nothing_of_the_fleet(connection: Connection) -> None:
    loads.keep(connection, [bucket(MINUTE, slow=50.0), bucket(MINUTE, "other"), bucket(MINUTE, tenant="lab")])
    fleet_minutes.keep_cost(connection, FleetCost(9.0, 8.0, 7.0))
    for span in RANGES:
        [chart] = read_fleet_charts(connection, span, NOON, "shop", "USD")
        assert chart.id == "attained"
        assert [value for value in chart.series[0].values if value is not None] == [(200 - 55) / 200], span.name
        assert len(read_fleet_charts(connection, span, NOON, "", "USD")) == 5


def test_only_changes_of_plans_that_were_carried_out_count(connection: Connection) -> None:
    changes = '{"keep": 9, "start": 3, "stop": 1, "resize": 2}'
    for generation, (state, minute) in enumerate(
        [("done", 1), ("superseded", 2), ("advisory", 3), ("expired", 4), ("rolling", 70), ("rejected", 71)]
    ):
        connection.execute(
            text(
                "INSERT INTO plan (generation, epoch, at, lane, state, snapshot, body, desired, changes)"
                " VALUES (:generation, 1, :at, 'full', :state, '{}', '', '', CAST(:changes AS jsonb))"
            ),
            {"generation": generation, "at": NOON + minute * MINUTE, "state": state, "changes": changes},
        )
    assert change_points.points(connection, NOON, NOON + 2 * HOUR, HOUR) == [
        ChangePoint(NOON, 6, 2, 0, 4),
        ChangePoint(NOON + HOUR, 3, 1, 0, 2),
    ]


def test_the_days_of_money_name_the_most_expensive_and_sum_up_the_others(connection: Connection) -> None:
    today = NOON.replace(hour=0)
    lines = [
        ("shop", "search", "used", 5), ("shop", "chat", "used", 3), ("lab", "x", "used", 1), ("", "", "idle", 4),
        ("", "", "unallocated", 2),
    ]  # fmt: skip
    for day in (today, today - timedelta(days=1), today - timedelta(days=40)):
        for tenant, service, kind, cost in lines:
            connection.execute(
                text(
                    "INSERT INTO cost_day VALUES (:day, 'n', 0, 1, 'l4', 'eu', 'owned', :tenant, :service, '', 'm', "
                    ":kind, 'measured', 1, :nano)"
                ),
                {"day": day, "tenant": tenant, "service": service, "kind": kind, "nano": cost * 10**9},
            )
    first = today - timedelta(days=29)
    found = cost_days.sum_by_tenant(connection, first, today, 2)
    assert [line for line in found if line.day == today] == [
        DayCost(today, "", 3.0), DayCost(today, "__idle__", 4.0), DayCost(today, "shop", 8.0)
    ]  # fmt: skip
    assert {line.day for line in found} == {today, today - timedelta(days=1)}
    works = cost_days.sum_by_work(connection, today, today, 9, "")
    assert {line.name for line in works} == {"shop/search", "shop/chat", "lab/x", "__idle__", "__unallocated__"}
    own = cost_days.sum_by_work(connection, first, today, 1, "shop")
    assert [(line.name, line.cost) for line in own if line.day == today] == [("", 3.0), ("shop/search", 5.0)]


def test_minutes_and_hours_tell_how_a_service_answered_and_those_without_answers_nothing(
    connection: Connection,
) -> None:
    loads.keep(connection, [bucket(4 * HOUR, slow=50.0), bucket(MINUTE), bucket(2 * MINUTE, answers=0.0, slow=0.0)])
    roll_up(connection)
    loads.keep(connection, [bucket(0 * MINUTE, errors=100), bucket(MINUTE, "other"), bucket(MINUTE, tenant="lab")])
    found = late_minutes.read_answered_spans(connection, ["shop/search", "shop/unknown"])
    assert found == [
        AnsweredSpan("shop/search", NOON - 5 * HOUR, HOUR, 0.5),
        AnsweredSpan("shop/search", NOON - 2 * MINUTE, MINUTE, 0.95),
        AnsweredSpan("shop/search", NOON - MINUTE, MINUTE, 95 / 200),
    ]


def test_the_busiest_hour_is_the_one_that_was_planned_for_or_asked_for_most(connection: Connection) -> None:
    minute: dict[str, Any] = {"seconds": 60.0, "requests": 600.0, "planned": 720.0}
    loads.keep(connection, [bucket(4 * HOUR, **(minute | {"requests": 1800.0})), bucket(MINUTE, **minute)])
    loads.keep(connection, [bucket(MINUTE, "other", **minute), bucket(MINUTE, "deleted", **minute)])
    loads.keep(connection, [bucket(9 * 24 * HOUR, "other", **(minute | {"planned": 9e9})), bucket(MINUTE, "brief")])
    roll_up(connection)
    for name in ("search", "other", "brief"):
        connection.execute(
            text(
                "INSERT INTO object (uid, kind, tenant, name, labels, spec, status, generation, resource_version,"
                " selectable, created_at, updated_at) VALUES (gen_random_uuid(), 'Service', 'shop', :name, '{}', '{}',"
                " '{}', 1, 1, '{}', now(), now())"
            ),
            {"name": name},
        )
    assert load_points.read_busiest_rates(connection) == {"shop/other": 12.0, "shop/search": 30.0}


def test_latencies_come_from_buckets_and_from_hours_of_what_was_assigned_before_them(connection: Connection) -> None:
    loads.keep(connection, [bucket(MINUTE, latency_counts=[0, 5, 1]), bucket(2 * MINUTE, latency_counts=[2])])
    loads.keep(connection, [bucket(MINUTE, "other", latency_counts=[9])])
    partitions.ensure(connection, [NOON])
    for instance, hour, counts in (("a", 4, [1, 1]), ("b", 4, [0, 0, 3]), ("a", 1, [50]), ("stranger", 5, [70])):
        connection.execute(
            text(
                "INSERT INTO instance_hour (hour, node, instance, minutes, gpu, tenant, service, job, sm_percent,"
                " memory_gib, requests, errors, latency_counts, batch_mean, queue_mean, busy_seconds)"
                " VALUES (:hour, 'n', :instance, 60, 0, 'shop', 'search', '', 50, 1, 1, 0, :counts, 1, 1, 1)"
            ),
            {"hour": NOON - hour * HOUR, "instance": instance, "counts": counts},
        )
    for instance, gpu in (("a", 0), ("b", 0), ("b", 1)):
        connection.execute(
            text("INSERT INTO assigned VALUES ('n', :instance, :gpu, 'shop', 'search', '', 50, 1, false, now())"),
            {"instance": instance, "gpu": gpu},
        )
    day = latency_points.read_latency_points(connection, "shop", "search", NOON - 24 * HOUR, NOON, HOUR)
    assert day == [LatencyPoint(NOON - 4 * HOUR, [1, 1, 3]), LatencyPoint(NOON - HOUR, [2, 5, 1])]
    fine = latency_points.read_latency_points(connection, "shop", "search", NOON - 24 * HOUR, NOON, MINUTE)
    assert [point.counts for point in fine] == [[2], [0, 5, 1]], "hours are too long for minutes"
