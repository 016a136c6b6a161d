"""Money: the trend of a month, today and this month by tenant and by service or job, and the same as CSV."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Literal

from fastapi import APIRouter, Request, Response
from sqlalchemy import Connection

from app.access import AccessVerb, Noun, Principal, Reach, require
from app.api.requests import Ctx
from app.console.charts.drawing import TimeChart
from app.console.charts.reading import read_money_charts, read_spending
from app.console.charts.section import draw_month
from app.console.charts.spending import SpendingFigure
from app.console.data import read_money
from app.console.money import Money
from app.console.money_page import BY, MoneyTable, make_table, span_of
from app.console.page_answer import show
from app.console.page_request import read_charts_query
from app.console.visitor import Viewer
from app.control.rent.money import PoolMoney, find_month, read_pools
from app.reports import sheets
from app.store.database import clock
from app.store.money import report_queries
from app.store.money.report_queries import REPORTS, ReportQuery

router = APIRouter(include_in_schema=False)

CSV = "text/csv; charset=utf-8"
MOST_ROWS = 200_000


@router.get("/money")
def money_page(request: Request, ctx: Ctx, who: Viewer) -> Response:
    tenant, currency = _tenant_of(who), ctx.settings.currency

    counted = ctx.windows.read(ctx.database, tenant)

    def read(
        connection: Connection,
    ) -> tuple[datetime, Money, MoneyTable, Sequence[TimeChart], SpendingFigure | None, Sequence[PoolMoney]]:
        at = clock.moment(connection)
        table = make_table(*(_rows(connection, _query(span, at, tenant)) for span in ("today", "month")))
        charts = read_money_charts(connection, at, tenant, currency)
        spending = None if tenant else read_spending(connection, counted, currency)
        pools = [] if tenant else read_pools(connection, find_month(at))
        return at, read_money(connection, who, at, currency), table, charts, spending, pools

    at, money, table, charts, spending, pools = ctx.database.read(read)
    query = read_charts_query(request.query_params)
    section = draw_month(charts, lambda _, shown: f"/money{query.part(table=shown)}", query.table)
    return show(
        request, who, "money.html", at, money=money, table=table, charts=section, spending=spending, pools=pools
    )


@router.get("/money/{span}.csv")
def money_sheet(ctx: Ctx, who: Viewer, span: Literal["today", "month"]) -> Response:
    """Answers with the cost by tenant and by service or job, exactly as the report `cost` has it."""
    tenant = _tenant_of(who)

    def read(connection: Connection) -> tuple[ReportQuery, list[dict[str, object]]]:
        query = _query(span, clock.moment(connection), tenant)
        return query, _rows(connection, query)

    query, rows = ctx.database.read(read)
    disposition = f'attachment; filename="gpuwright-cost-{span}.csv"'
    text = "".join(sheets.sheet(query, REPORTS["cost"], rows))
    return Response(text, media_type=CSV, headers={"Content-Disposition": disposition})


def _tenant_of(who: Principal) -> str:
    """Returns the tenant whose money the caller sees; empty where it sees everybody's."""
    return who.tenant if require(who, Noun.MONEY, AccessVerb.READ) is Reach.OWN else ""


def _query(span: str, at: datetime, tenant: str) -> ReportQuery:
    begins, ends = span_of(span, at)
    return ReportQuery("cost", BY, "", begins, ends, tenant, most=MOST_ROWS)


def _rows(connection: Connection, query: ReportQuery) -> list[dict[str, object]]:
    return report_queries.read(connection, query)
