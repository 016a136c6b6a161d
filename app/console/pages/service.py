"""A service: its state, where its instances run, and why."""

from __future__ import annotations

from collections.abc import Sequence

from fastapi import APIRouter, Request, Response
from sqlalchemy import Connection

from app.api import overview
from app.api.requests import Ctx
from app.console.charts.drawing import TimeChart
from app.console.charts.ranges import read_range
from app.console.charts.reading import read_service_charts
from app.console.charts.section import draw_section
from app.console.data import ConsoleData, read_services
from app.console.page_answer import show, shown_tenant, zone_of_reader
from app.console.refusals import unknown_name
from app.console.services import make_rows
from app.console.visitor import Viewer
from app.control.tell.token_shares import TokenShares, token_shares
from app.store.fleet import loads

router = APIRouter(include_in_schema=False)

MOST_INSTANCES = 200


@router.get("/services/{tenant}/{name}")
def service_page(request: Request, ctx: Ctx, who: Viewer, tenant: str, name: str) -> Response:
    full, own = f"{tenant}/{name}", shown_tenant(who)
    counted = ctx.windows.read(ctx.database, own)

    span = read_range(request.query_params.get("range", ""))

    def read(connection: Connection) -> tuple[ConsoleData, TokenShares, Sequence[TimeChart]]:
        found = read_services(connection, own, counted)
        chosen = next((line for line in found.services if line["service"] == full), None)
        if chosen is None:
            raise unknown_name("service")
        charts = read_service_charts(connection, span, found.at, full, chosen["percentile"])
        if not chosen["tpotMs"]:
            return found, TokenShares(), charts
        window = loads.WINDOWS[overview.SLO_WINDOW]
        return found, token_shares(loads.token_answers(connection, tenant, name, window), chosen["sloMs"]), charts

    data, shares, charts = ctx.database.read(read)
    row = next(row for row in make_rows(data) if row.name == full)
    instances = [line for line in data.body.get("instances", ()) if line["service"] == full]
    return show(
        request, who, "service.html", data.at, service=row, shares=shares,
        charts=draw_section(charts, span, zone_of_reader(request), lambda name: f"?range={name}#charts"),
        instances=instances[:MOST_INSTANCES], more=max(0, len(instances) - MOST_INSTANCES),
    )  # fmt: skip
