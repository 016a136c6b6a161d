"""Reads what charts show, by the same rules as the pages: a tenant sees its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, tzinfo

from sqlalchemy import Connection

from app.api.answers import explain
from app.api.answers.overview import OverviewServiceWire
from app.console.charts.drawing import TimeChart
from app.console.charts.fleet import FleetPoints, fleet_charts
from app.console.charts.lanes import ClosedTime, LaneFigure, draw_lanes
from app.console.charts.money import NAMED, days_until, money_charts
from app.console.charts.node import node_charts
from app.console.charts.ranges import HOUR, TimeRange
from app.console.charts.service import service_charts
from app.console.charts.shares import ShareFigure, draw_shares
from app.console.charts.spending import SpendingFigure, draw_spending
from app.console.data import read_services
from app.manifests.model import Key, Kind
from app.store.fleet import fleet_map, fleet_minutes, gpu_holdings, gpu_points, latency_points, load_points
from app.store.fleet.cordons import Cordon
from app.store.fleet.loads import WindowSums
from app.store.money import cost_days
from app.store.plans import change_points, outlook
from app.store.world import objects
from app.store.world.objects import Selection
from solvers.planning.wire import PlanInstanceWire

MOST_TENURES = 5000  # of a node
MOST_PROFILES = 4  # that are drawn: of the variants and GPU types with the most instances


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
    connection: Connection, span: TimeRange, now: datetime, service: OverviewServiceWire
) -> Sequence[TimeChart]:
    """Returns the charts of a service that the caller may see."""
    begins = span.begins(now, span.load_step)
    tenant, _, name = service["service"].partition("/")
    points = load_points.read_service_points(connection, tenant, name, begins[0], now, span.load_step)
    latencies = latency_points.read_latency_points(connection, tenant, name, begins[0], now, span.load_step)
    ahead = load_points.read_hours_ahead(connection, tenant, name, now) if span.load_step == HOUR else []
    return service_charts(begins, span.load_step, points, latencies, service, ahead)


def read_node_charts(connection: Connection, span: TimeRange, now: datetime, node: str) -> Sequence[TimeChart]:
    """Returns the charts of what a node's GPUs reported; not for tenants."""
    begins = span.begins(now, span.step)
    points = gpu_points.read_gpu_points(connection, node, begins[0], now, span.step)
    return node_charts(
        begins, span.step, points, gpu_points.read_ailing_points(connection, node, begins[0], now, span.step)
    )


def read_lanes(
    connection: Connection, span: TimeRange, now: datetime, node: str, tenant: str, gpus: Sequence[int],
    cordons: Sequence[Cordon], zone: tzinfo,
) -> LaneFigure:  # fmt: skip
    """Returns the holders of a node's GPUs; a tenant's own copies for a tenant."""
    begins = span.begins(now, span.step)
    tenures = gpu_holdings.read_tenures(connection, node, begins[0], tenant, MOST_TENURES + 1)
    closed = [ClosedTime(cordon.gpu, cordon.asked_at) for cordon in cordons]
    known = sorted({*gpus, *(tenure.gpu for tenure in tenures)})
    figure = draw_lanes(known, tenures[:MOST_TENURES], closed, begins, span.step, now, zone)
    return replace(figure, is_cut=len(tenures) > MOST_TENURES)


def read_share_figures(
    connection: Connection, tenant: str, service: OverviewServiceWire, instances: Sequence[PlanInstanceWire]
) -> list[ShareFigure]:
    """Returns the Profiles by which the instances are planned, drawn; a tenant's own view for a tenant."""
    owner, _, name = service["service"].partition("/")
    stored = objects.get(connection, Key(Kind.SERVICE, owner, name))
    nodes = fleet_map.read_named_nodes(connection, {line["node"] for line in instances})
    gpu_types = {node.name: node.gpu_type for node in nodes}
    placed: dict[tuple[str, str], list[PlanInstanceWire]] = {}
    for line in instances:
        placed.setdefault((line["variant"], gpu_types.get(line["node"], "")), []).append(line)
    found: list[ShareFigure] = []
    for (variant, gpu_type), lines in sorted(placed.items(), key=lambda place: -len(place[1]))[:MOST_PROFILES]:
        known = {"model": stored.spec["model"] if stored else "", "variant": variant, "gpuType": gpu_type}
        wanted = Selection(
            Kind.PROFILE, admitting=tenant, has=[f"spec.{field}={value}" for field, value in known.items()]
        )
        for profile in objects.page(connection, wanted, ("", ""), 1):
            figure = draw_shares(explain.describe_stored_profile(connection, profile), lines, service["sloMs"])
            found += [figure] if figure else []
    return found


def read_money_charts(connection: Connection, now: datetime, tenant: str, currency: str) -> Sequence[TimeChart]:
    """Returns the trend of the last 30 days; a tenant's has only its own services and jobs."""
    days = days_until(now.astimezone(UTC))
    by_tenant = [] if tenant else cost_days.sum_by_tenant(connection, days[0], days[-1], NAMED)
    by_work = cost_days.sum_by_work(connection, days[0], days[-1], NAMED, tenant)
    return money_charts(days, by_tenant, by_work, currency)


def read_spending(connection: Connection, counted: WindowSums, currency: str) -> SpendingFigure | None:
    """Returns where the money of an hour goes; None without a plan."""
    data = read_services(connection, "", counted)
    if data.plan is None:
        return None
    held = outlook.get(connection, outlook.MONEY).get("heldPerHour")
    return draw_spending(data.services, held, data.body.get("certificate"), data.plan["generation"], currency)
