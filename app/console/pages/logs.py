"""Shows what the copies of a service, or the newest process of a job, print: the last lines, read from their nodes."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response
from starlette.concurrency import run_in_threadpool

from app.access import AccessVerb, require
from app.api.logs import MOST_INSTANCES, read_logs
from app.api.requests import Ctx
from app.console.links import job_link, service_link
from app.console.page_answer import show
from app.console.visitor import Viewer
from app.manifests.model import Key, Kind
from app.problem import HttpProblem
from app.store.database import clock

router = APIRouter(include_in_schema=False)

BUSY = 503  # too many logs are being read


@router.get("/services/{tenant}/{name}/logs")
async def service_logs_page(request: Request, ctx: Ctx, who: Viewer, tenant: str, name: str) -> Response:
    return await _show(request, ctx, who, Key(Kind.SERVICE, tenant, name), service_link(f"{tenant}/{name}"))


@router.get("/jobs/{tenant}/{name}/logs")
async def job_logs_page(request: Request, ctx: Ctx, who: Viewer, tenant: str, name: str) -> Response:
    return await _show(request, ctx, who, Key(Kind.JOB, tenant, name), job_link(f"{tenant}/{name}"))


async def _show(request: Request, ctx: Ctx, who: Viewer, key: Key, back: str) -> Response:
    require(who, key.kind, AccessVerb.READ, key.tenant)
    parts, refused = [], None
    try:
        parts = (await read_logs(ctx, key))["items"]
    except HttpProblem as problem:
        if problem.status != BUSY:
            raise
        refused = problem
    at = await run_in_threadpool(ctx.database.read, clock.moment)
    return show(
        request, who, "logs.html", at, name=f"{key.tenant}/{key.name}", back=back, parts=parts, refused=refused,
        is_job=key.kind is Kind.JOB, most=MOST_INSTANCES,
    )  # fmt: skip
