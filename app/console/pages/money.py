"""Money of today, by service, as far as it is booked."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response
from sqlalchemy import Connection

from app.api.requests import Ctx
from app.console.data import read_money
from app.console.money import Money
from app.console.page_answer import show
from app.console.visitor import Viewer
from app.store.fleet import observed

router = APIRouter(include_in_schema=False)


@router.get("/money")
def money_page(request: Request, ctx: Ctx, who: Viewer) -> Response:
    def read(connection: Connection) -> tuple[object, Money]:
        at = observed.moment(connection)
        return at, read_money(connection, who, at, ctx.settings.currency)

    at, money = ctx.database.read(read)
    return show(request, who, "money.html", at, money=money)  # type: ignore[arg-type]
