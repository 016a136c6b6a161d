"""The ledger books what GPUs cost, and everyone who adds it up gets the same."""

from __future__ import annotations

import csv
import io
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import psycopg

from app.store.database.urls import sqlalchemy_url
from tests.support.month import Fleet, account_for, load
from tests.support.patience import until
from tests.tour.running import TourFleet

IN_SQL = "SELECT service, sum(cost) FROM report.cost_by_service WHERE hour >= %s AND hour < %s GROUP BY service"
IN_LEDGER = "SELECT sum(nano) FROM allocation WHERE node = %s AND slice >= %s AND slice < %s"
IS_ACCOUNTED = "SELECT min(allocated_until) >= %s FROM ledger_node WHERE node = ANY(%s)"
PRICE_PER_HOUR, GPUS, HOURS = Decimal("3.2"), 2, 24  # of the first node of a made-up fleet


def test_a_day_costs_the_same_in_the_report_in_sql_in_the_ledger_and_by_price(fleet: TourFleet) -> None:
    midnight = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    used = Fleet(days=1, gpus=GPUS, instances=5, services=3, tenants=1, shapes_a_day=6, begins=midnight - timedelta(1))
    load(sqlalchemy_url(fleet.database_url), used)
    account_for(sqlalchemy_url(fleet.database_url), used.ends + timedelta(minutes=30))
    # The tour's own planner accounts for these nodes too, and what it holds is left to it.
    until(lambda: is_accounted(fleet.database_url, used), "the ledger does not reach the day's end")
    begins, ends = used.begins.isoformat(), used.ends.isoformat()
    said = fleet.cli("report", "cost", "--by", "service", "--from", begins, "--to", ends, "-o", "csv")
    reported = {row["service"]: Decimal(row["cost"]) for row in csv.DictReader(io.StringIO(said))}
    with psycopg.connect(fleet.database_url) as connection:
        in_sql: dict[str, Decimal] = dict(connection.execute(IN_SQL, (used.begins, used.ends)).fetchall())
        (nano,) = connection.execute(IN_LEDGER, (used.nodes[0], used.begins, used.ends)).fetchone() or (0,)
    assert reported == in_sql
    assert len(reported) >= 3
    assert sum(reported.values()) == Decimal(nano) / 10**9 == PRICE_PER_HOUR * GPUS * HOURS


def is_accounted(url: str, used: Fleet) -> bool:
    with psycopg.connect(url) as connection:
        (accounted,) = connection.execute(IS_ACCOUNTED, (used.ends, used.nodes)).fetchone() or (False,)
        return bool(accounted)
