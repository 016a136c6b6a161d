"""A service: its state, where its instances run, what plans changed of it, why, and the price of its SLO."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TypeAlias

from fastapi import APIRouter, Request, Response
from sqlalchemy import Connection

from app.access import AccessVerb, Noun, Principal, may
from app.api.answers import explain, overview, whatif
from app.api.answers.overview import OverviewServiceWire
from app.api.plans import plan_wire
from app.api.plans.plan_wire import PlanHeadWire
from app.api.requests import Ctx
from app.console.charts.drawing import TimeChart
from app.console.charts.prices import draw_latencies, draw_percentiles
from app.console.charts.ranges import TimeRange, choose_range
from app.console.charts.reading import read_service_charts, read_share_figures
from app.console.charts.section import draw_section
from app.console.charts.shares import ShareFigure
from app.console.data import ConsoleData, read_late_runs, read_services
from app.console.late_runs import LateRun
from app.console.links import service_link
from app.console.page_answer import show, shown_tenant, zone_of_reader
from app.console.page_request import read_charts_query
from app.console.refusals import unknown_name
from app.console.services import make_rows
from app.console.visitor import Viewer
from app.context import Context
from app.control.answer.explain.wire import ServiceExplanationWire
from app.control.tell.token_shares import TokenShares, count_token_shares
from app.problem import HttpProblem
from app.store.database import clock
from app.store.fleet import fleet_minutes, gpu_holdings, loads
from app.store.fleet.gpu_holdings import ServedPlace
from app.store.plans import plan_reads
from app.store.world import events
from app.store.world.events import EventFilter, RecordedEvent
from app.store.world.slos import slos
from solvers.planning.plan_fields import held_gpus

LEAST_PRICE = 0.005  # an hour; less is shown as 0.00
router = APIRouter(include_in_schema=False)

ServicePictures: TypeAlias = tuple[TimeRange, Sequence[TimeChart], list[ShareFigure]]

MOST_INSTANCES = 200
MOST_PLANS = 15
MOST_EVENTS = 30


class HistoryPlan(PlanHeadWire):
    """A plan that changed something of a service, and its moment."""

    moment: datetime


@dataclass(frozen=True, slots=True)
class ServiceHistory:
    """The history of a service: plans that changed something of it, events, and the shares of its tokens' SLOs."""

    shares: TokenShares
    plans: list[HistoryPlan]
    events: list[RecordedEvent]
    late: LateRun | None = None  # None: it has not been late for a week
    leaving: Sequence[ServedPlace] = ()  # of copies where the plan has none any more


@router.get("/services/{tenant}/{name}")
def service_page(request: Request, ctx: Ctx, who: Viewer, tenant: str, name: str) -> Response:
    full, own = f"{tenant}/{name}", shown_tenant(who)
    counted = ctx.windows.read(ctx.database, own)

    query = read_charts_query(request.query_params)

    def read(
        connection: Connection,
    ) -> tuple[ConsoleData, ServiceHistory, ServicePictures]:
        found = read_services(connection, own, counted)
        chosen = next((line for line in found.services if line["service"] == full), None)
        if chosen is None:
            raise unknown_name("service")
        span = choose_range(query.range, fleet_minutes.read_oldest(connection), found.at)
        charts = read_service_charts(connection, span, found.at, chosen)
        placed = [line for line in found.body["instances"] if line["service"] == full]
        shares = read_share_figures(connection, own, chosen, placed)
        history = _history(connection, chosen, tenant, name, own)
        planned = {(line["node"], gpu) for line in placed for gpu in held_gpus(line)}
        copies = gpu_holdings.read_copy_places(connection, tenant, name)
        leaving = [copy for copy in copies if found.is_in_force and (copy.node, copy.gpu) not in planned]
        return found, replace(history, leaving=leaving), (span, charts, shares)

    def address(range_name: str, table: str) -> str:
        return f"{service_link(full)}{query.part(range=range_name, table=table)}"

    data, history, (span, charts, shares) = ctx.database.read(read)
    row = next(row for row in make_rows(data) if row.name == full)
    instances = [line for line in data.body["instances"] if line["service"] == full]
    return show(
        request, who, "service.html", data.at, pinned={"range": span.name}, service=row, history=history,
        currency=ctx.settings.currency,
        charts=draw_section(charts, span, zone_of_reader(request), address, query.table),
        shares=shares, instances=instances[:MOST_INSTANCES], more=max(0, len(instances) - MOST_INSTANCES),
        may_price=may(who, Noun.WHAT_IF, AccessVerb.WRITE), price_seconds=whatif.PRICE_SECONDS,
    )  # fmt: skip


@router.get("/services/{tenant}/{name}/explain")
def explanation_page(request: Request, ctx: Ctx, who: Viewer, tenant: str, name: str) -> Response:
    """Shows what `gpuwright explain service` prints."""
    at = _require(ctx, who, tenant, name)
    found: ServiceExplanationWire | None = None
    refused = ""
    try:
        found = explain.service_explanation(ctx, who, tenant, name)
    except HttpProblem as problem:
        refused = problem.detail
    return show(request, who, "explanation.html", at, name=f"{tenant}/{name}", found=found, refused=refused)


@router.get("/services/{tenant}/{name}/price")
def price_page(request: Request, ctx: Ctx, who: Viewer, tenant: str, name: str) -> Response:
    """Shows what the SLO of a service costs, and what others would: by latency as steps, and by percentile."""
    at = _require(ctx, who, tenant, name)
    price, refused = None, ""
    try:
        price = whatif.slo_price(ctx, who, f"{tenant}/{name}")
    except HttpProblem as problem:
        refused = problem.detail
    percentiles, latencies = (price.get("percentiles", []), price.get("latencies", [])) if price else ([], [])
    currency = ctx.settings.currency
    return show(
        request, who, "price.html", at, name=f"{tenant}/{name}", price=price, refused=refused, percentiles=percentiles,
        drawing=draw_percentiles(percentiles, currency) if percentiles else None, latencies=latencies,
        steps=draw_latencies(latencies, price["sloMs"], currency) if price and latencies else None,
        currency=currency, least=LEAST_PRICE,
    )  # fmt: skip


def _require(ctx: Context, who: Principal, tenant: str, name: str) -> datetime:
    """Refuses a service that does not exist for this visitor; returns the moment."""
    own = shown_tenant(who)

    def read(connection: Connection) -> tuple[datetime, bool]:
        return clock.moment(connection), f"{tenant}/{name}" in dict(slos(connection, own))

    at, is_known = ctx.database.read(read)
    if not is_known:
        raise unknown_name("service")
    return at


def _history(connection: Connection, service: OverviewServiceWire, tenant: str, name: str, own: str) -> ServiceHistory:
    shares = TokenShares()
    if service["tpotMs"]:
        window = loads.WINDOWS[overview.SLO_WINDOW]
        shares = count_token_shares(loads.read_token_answers(connection, tenant, name, window), service["sloMs"])
    plans: list[HistoryPlan] = [
        {**plan_wire.head(row, own), "moment": row["at"]}
        for row in plan_reads.page_of_service(connection, tenant, name, MOST_PLANS)
    ]
    wanted = EventFilter(kind="Service", tenant=tenant, name=name)
    late = read_late_runs(connection, [service]).get(service["service"])
    return ServiceHistory(shares, plans, events.recent(connection, wanted, MOST_EVENTS), late)
