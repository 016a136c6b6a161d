"""The first page: what needs attention, figures, charts, the map of the fleet, the last events."""

from __future__ import annotations

from collections.abc import Sequence

from fastapi import APIRouter, Request, Response
from sqlalchemy import Connection

from app.api.requests import Ctx
from app.console.charts.drawing import TimeChart
from app.console.charts.ranges import TimeRange, choose_range
from app.console.charts.reading import read_fleet_charts
from app.console.charts.section import draw_section
from app.console.data import ConsoleData, read_fleet, read_money
from app.console.fleet_page import fleet_values
from app.console.money import Money
from app.console.page_answer import show, shown_tenant, zone_of_reader
from app.console.page_request import read_fleet_query
from app.console.visitor import Viewer
from app.store.fleet import fleet_minutes

router = APIRouter(include_in_schema=False)


@router.get("/")
def fleet_page(request: Request, ctx: Ctx, who: Viewer) -> Response:
    query, tenant = read_fleet_query(request.query_params), shown_tenant(who)
    counted = ctx.windows.read(ctx.database, tenant)

    currency = ctx.settings.currency

    def read(connection: Connection) -> tuple[ConsoleData, Money, TimeRange, Sequence[TimeChart]]:
        found = read_fleet(connection, tenant, counted)
        span = choose_range(query.range, fleet_minutes.read_oldest(connection), found.at)
        drawn = read_fleet_charts(connection, span, found.at, tenant, currency)
        return found, read_money(connection, who, found.at, currency), span, drawn

    data, money, span, charts = ctx.database.read(read)
    section = draw_section(
        charts, span, zone_of_reader(request), lambda name, table: query.url(range=name, table=table), query.table
    )
    pinned, values = {"range": span.name}, fleet_values(data, money, query)
    return show(request, who, "fleet_page.html", data.at, pinned=pinned, charts=section, **values)
