"""Every view says what it is and whose rights it is read with; sums agree with each other in any time zone."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from typing import Any

import psycopg
import pytest

from app.store.database.database import Database
from app.store.money.report_queries import REPORTS, ReportQuery, read

RELATIONS = """
    SELECT c.relname, c.relkind, obj_description(c.oid, 'pg_class'), c.reloptions, a.attname,
        col_description(c.oid, a.attnum)
    FROM pg_class AS c JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum > 0
    WHERE c.relnamespace = 'report'::regnamespace AND c.relkind IN ('v', 'r', 'm')
"""
SOME_VIEWS = [*(one.view for one in REPORTS.values()), "cost_by_service", "cost_by_node"]
ZONES = ["UTC", "Europe/Berlin", "Asia/Kolkata", "Asia/Kathmandu", "America/St_Johns", "Pacific/Chatham"]


def asked(url: str, query: str, zone: str = "UTC") -> list[tuple[Any, ...]]:
    with psycopg.connect(url) as connection:
        connection.execute("SELECT set_config('TimeZone', %s, true)", [zone])
        return connection.execute(query.encode()).fetchall()


def test_every_view_and_column_says_what_it_is(database_url: str) -> None:
    rows = asked(database_url, RELATIONS)
    assert len({row[0] for row in rows}) > 40
    assert [(row[0], row[4]) for row in rows if not row[2] or not row[5]] == []


def test_every_view_is_read_with_the_rights_of_who_asks(database_url: str) -> None:
    rows = asked(database_url, RELATIONS)
    assert {row[0] for row in rows if row[1] == "v" and "security_invoker=true" not in (row[3] or ())} == set()
    assert {row[0] for row in rows if row[1] != "v"} == {"calendar"}


@pytest.mark.parametrize("zone", ZONES)
def test_hours_add_up_to_days_and_days_to_months_in_every_zone(history_url: str, zone: str) -> None:
    quarters = """
        SELECT to_char(slice, 'YYYY-MM-DD'), sum(nano), sum(gpu_microseconds), sum(energy_mj)
        FROM allocation GROUP BY 1 ORDER BY 1
    """
    days = """
        SELECT to_char(day, 'YYYY-MM-DD'), sum(nano), sum(gpu_microseconds), sum(energy_mj)
        FROM report.cost_daily GROUP BY 1 ORDER BY 1
    """
    assert asked(history_url, days, zone) == asked(history_url, quarters, zone)
    months = days.replace("DD'", "01'").replace("cost_daily", "cost_monthly").replace("day,", "month,")
    assert asked(history_url, months, zone) == asked(history_url, quarters.replace("DD'", "01'"), zone)
    assert asked(history_url, "SELECT sum(cost) FROM report.cost_by_service") == [(Decimal("25.600000000"),)]


@pytest.mark.slow
def test_periods_meet_where_clocks_change(database_url: str) -> None:
    hours = """
        SELECT to_char(day, 'MM-DD'), extract(epoch FROM stops_at - starts_at)::int / 3600 FROM report.days
        WHERE day IN ('2026-03-29', '2026-03-30', '2026-10-25') ORDER BY 1
    """
    assert asked(database_url, hours, "Europe/Berlin") == [("03-29", 23), ("03-30", 24), ("10-25", 25)]
    gaps = """
        SELECT count(*) FROM (SELECT starts_at, lag(stops_at) OVER (ORDER BY day) AS before FROM report.days) AS days
        WHERE starts_at <> before
    """
    for zone in ZONES:
        assert asked(database_url, gaps, zone) == [(0,)]
        assert asked(database_url, gaps.replace("day)", "month)").replace("report.days", "report.months"), zone) == [
            (0,)
        ]


@pytest.mark.parametrize("name", REPORTS)
@pytest.mark.parametrize("grain", ["", "hour", "day", "month"])
def test_every_report_is_read_at_every_grain_by_each_dimension(history_url: str, name: str, grain: str) -> None:
    database = Database(history_url, pool_size=1, direct=True)
    begins, ends = datetime(2026, 10, 1, tzinfo=UTC), datetime(2026, 12, 1, tzinfo=UTC)
    try:
        report = REPORTS[name]
        whole = database.read(partial(read, query=ReportQuery(name, (), grain, begins, ends)))
        assert whole
        first = next(iter(report.values))
        for by in report.dimensions:
            rows = database.read(partial(read, query=ReportQuery(name, (by,), grain, begins, ends)))
            assert {by, *report.values} <= rows[0].keys()
            assert ("period" in rows[0]) == bool(grain)
            if first in ("gpu_hours", "cost", "requests", "energy_kwh"):
                total = sum((row[first] or 0 for row in rows), Decimal())
                assert total == sum((row[first] or 0 for row in whole), Decimal())
    finally:
        database.close()


def test_no_tenant_is_asked_of_a_report_of_the_whole_fleet() -> None:
    begins, ends = datetime(2026, 11, 1, tzinfo=UTC), datetime(2026, 12, 1, tzinfo=UTC)
    for name in (name for name, report in REPORTS.items() if report.is_of_fleet):
        with pytest.raises(ValueError, match=f"{name} is of the whole fleet, and not of tenant lab"):
            ReportQuery(name, (), "", begins, ends, tenant="lab")


def test_a_report_of_a_tenant_has_its_rows_alone(history_url: str) -> None:
    database = Database(history_url, pool_size=1, direct=True)
    begins, ends = datetime(2026, 11, 1, tzinfo=UTC), datetime(2026, 12, 1, tzinfo=UTC)
    try:
        for name in (name for name, report in REPORTS.items() if not report.is_of_fleet):
            rows = database.read(partial(read, query=ReportQuery(name, ("tenant",), "", begins, ends, tenant="lab")))
            assert {row["tenant"] for row in rows} <= {"lab"}
            assert bool(rows) == (name not in ("slo", "tokens"))  # it has no service
    finally:
        database.close()


@pytest.mark.parametrize("view", SOME_VIEWS)
@pytest.mark.parametrize("grain", ["daily", "monthly"])
def test_days_and_months_are_found_by_index(history_url: str, view: str, grain: str) -> None:
    period = "day >= '2026-11-01' AND day < '2026-12-01'" if grain == "daily" else "month = '2026-11-01'"
    _reads_nothing_whole(history_url, f"SELECT * FROM report.{view}_{grain} WHERE {period}")


@pytest.mark.parametrize("view", SOME_VIEWS)
def test_an_hour_is_found_by_index_and_partition(history_url: str, view: str) -> None:
    query = f"SELECT * FROM report.{view} WHERE hour >= '2026-11-20 10:00Z' AND hour < '2026-11-20 11:00Z'"
    assert "_202610" not in _reads_nothing_whole(history_url, query)


def _reads_nothing_whole(url: str, query: str) -> str:
    """The query's plan, in which nothing that grows with time is read from one end to the other."""
    with psycopg.connect(url) as connection:
        connection.execute("SET LOCAL enable_seqscan = off")  # of few rows the whole table would be read
        plan = "\n".join(row[0] for row in connection.execute(b"EXPLAIN " + query.encode()))
    for large in ("cost_hour", "cost_day", "allocation", "service_hour", "node_hour"):
        assert f"Seq Scan on {large}" not in plan, plan
    return plan


def test_an_invoice_has_every_cost_once(history_url: str) -> None:
    of_month = "SELECT to_char(month, 'YYYY-MM'), round(sum({}), 6) FROM report.{} GROUP BY 1 ORDER BY 1"
    costs = asked(history_url, of_month.format("nano * 0.000000001", "cost_monthly"))
    assert costs == asked(history_url, of_month.format("total", "invoice"))
    assert costs == asked(history_url, of_month.format("used + idle_share + unused", "invoice"))


def test_a_forecast_says_whether_it_is_from_less_than_a_day(history_url: str) -> None:
    assert asked(history_url, "SELECT DISTINCT is_early FROM report.forecast") == [(False,)]
