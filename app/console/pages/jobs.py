"""The list of jobs: how far each is, where it runs, and why it waits."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from fastapi import APIRouter, Request, Response
from sqlalchemy import Connection

from app.api.requests import Ctx
from app.console.jobs import job_lines
from app.console.page_answer import show, shown_tenant
from app.console.visitor import Viewer
from app.store.fleet import observed
from app.store.world import job_list

router = APIRouter(include_in_schema=False)

MOST_JOBS = 50


@router.get("/jobs")
def jobs_page(request: Request, ctx: Ctx, who: Viewer) -> Response:
    tenant = shown_tenant(who)

    def read(connection: Connection) -> tuple[datetime, list[tuple[str, dict[str, Any]]]]:
        return observed.moment(connection), job_list.listed(connection, tenant, MOST_JOBS)

    at, found = ctx.database.read(read)
    return show(request, who, "jobs.html", at, jobs=job_lines(found))
