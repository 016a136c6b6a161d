"""The first page: what needs attention, figures, the map of the fleet, the last events."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response
from sqlalchemy import Connection

from app.api.requests import Ctx
from app.console.data import ConsoleData, read_fleet, read_money
from app.console.fleet_page import fleet_values
from app.console.money import Money
from app.console.page_answer import show, shown_tenant
from app.console.page_request import read_fleet_query
from app.console.visitor import Viewer

router = APIRouter(include_in_schema=False)


@router.get("/")
def fleet_page(request: Request, ctx: Ctx, who: Viewer) -> Response:
    query, tenant = read_fleet_query(request.query_params), shown_tenant(who)
    counted = ctx.windows.read(ctx.database, tenant)

    def read(connection: Connection) -> tuple[ConsoleData, Money]:
        found = read_fleet(connection, tenant, counted)
        return found, read_money(connection, who, found.at, ctx.settings.currency)

    data, money = ctx.database.read(read)
    return show(request, who, "fleet_page.html", data.at, **fleet_values(data, money, query))
