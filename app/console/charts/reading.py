"""Reads what charts show, by the same rules as the pages: a tenant sees its own."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from sqlalchemy import Connection

from app.console.charts.drawing import TimeChart
from app.console.charts.fleet import FleetPoints, fleet_charts
from app.console.charts.money import NAMED, days_until, money_charts
from app.console.charts.ranges import TimeRange
from app.console.charts.service import service_charts
from app.store.fleet import fleet_minutes, load_points
from app.store.money import cost_days
from app.store.plans import change_points


def read_fleet_charts(
    connection: Connection, span: TimeRange, now: datetime, tenant: str, currency: str
) -> Sequence[TimeChart]:
    """Returns the charts of the fleet; a tenant's have only how its own services answered."""
    step = span.load_step if tenant else span.step
    begins = span.begins(now, step)
    if tenant:
        own = load_points.read_tenant_points(connection, tenant, begins[0], now, step)
        return fleet_charts(FleetPoints(begins, step, own=own, tenant=tenant))
    points = fleet_minutes.points(connection, begins[0], now, step)
    changes = change_points.points(connection, begins[0], now, step)
    return fleet_charts(FleetPoints(begins, step, points, changes), currency)


def read_service_charts(
    connection: Connection, span: TimeRange, now: datetime, service: str, percentile: float
) -> Sequence[TimeChart]:
    """Returns the charts of a service, tenant/name, that the caller may see."""
    begins = span.begins(now, span.load_step)
    tenant, _, name = service.partition("/")
    points = load_points.read_service_points(connection, tenant, name, begins[0], now, span.load_step)
    return service_charts(begins, span.load_step, points, percentile)


def read_money_charts(connection: Connection, now: datetime, tenant: str, currency: str) -> Sequence[TimeChart]:
    """Returns the trend of the last 30 days; a tenant's has only its own services and jobs."""
    days = days_until(now.astimezone(UTC))
    by_tenant = [] if tenant else cost_days.sum_by_tenant(connection, days[0], days[-1], NAMED)
    by_work = cost_days.sum_by_work(connection, days[0], days[-1], NAMED, tenant)
    return money_charts(days, by_tenant, by_work, currency)
