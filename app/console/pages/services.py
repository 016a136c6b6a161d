"""The table of services: filtered, sorted by its headers, page by page."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response
from sqlalchemy import Connection

from app.api.requests import Ctx
from app.console.data import ConsoleData, read_money, read_services
from app.console.money import Money
from app.console.page_answer import show, shown_tenant
from app.console.page_request import read_services_query
from app.console.services import make_page, make_rows
from app.console.visitor import Viewer

router = APIRouter(include_in_schema=False)


@router.get("/services")
def services_page(request: Request, ctx: Ctx, who: Viewer) -> Response:
    query, tenant = read_services_query(request.query_params), shown_tenant(who)
    counted = ctx.windows.read(ctx.database, tenant)

    def read(connection: Connection) -> tuple[ConsoleData, Money]:
        found = read_services(connection, tenant, counted)
        return found, read_money(connection, who, found.at, ctx.settings.currency)

    data, money = ctx.database.read(read)
    rows = make_rows(data)
    page = make_page(rows, query)
    return show(request, who, "services.html", data.at, query=query, services=page, total=len(rows), money=money)
