"""The list of jobs: how far each is, where it runs, and why it waits."""

from __future__ import annotations

from datetime import datetime

from fastapi import APIRouter, Request, Response
from sqlalchemy import Connection

from app.api.requests import Ctx
from app.console.jobs import job_lines
from app.console.page_answer import show, shown_tenant
from app.console.page_request import PHASES, read_jobs_query
from app.console.visitor import Viewer
from app.store.database import clock
from app.store.world import job_list

router = APIRouter(include_in_schema=False)

PAGE_ROWS = 50


@router.get("/jobs")
def jobs_page(request: Request, ctx: Ctx, who: Viewer) -> Response:
    query, tenant = read_jobs_query(request.query_params), shown_tenant(who)
    after = (query.page - 1) * PAGE_ROWS

    def read(connection: Connection) -> tuple[datetime, list[tuple[str, dict[str, object]]]]:
        found = job_list.list_jobs(connection, tenant, PAGE_ROWS + 1, after, query.phase, query.find, query.name)
        return clock.moment(connection), found

    at, found = ctx.database.read(read)
    return show(
        request, who, "jobs.html", at, query=query, jobs=job_lines(found[:PAGE_ROWS]), phases=PHASES,
        has_more=len(found) > PAGE_ROWS,
    )  # fmt: skip
