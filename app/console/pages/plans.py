"""The plan in force: its cost and proof, and why it leaves out what it leaves out."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from app.api.requests import Ctx
from app.console.data import ConsoleData, read_fleet
from app.console.page_answer import show, shown_tenant
from app.console.refusals import unknown_name
from app.console.visitor import Viewer
from app.control.domain.events import reason_of
from app.store.plans import plan_reads

router = APIRouter(include_in_schema=False)

MOST_REASONS = 30


@router.get("/plans")
def plans_page(request: Request, ctx: Ctx, who: Viewer) -> Response:
    return _show(request, ctx, who)


@router.get("/plans/{generation}")
def plan_page(request: Request, ctx: Ctx, who: Viewer, generation: str) -> Response:
    number = int(generation) if generation.isascii() and generation.isdigit() and len(generation) < 18 else 0
    if not number or ctx.database.read(lambda connection: plan_reads.read_head(connection, number)) is None:
        raise unknown_name("plan")
    return _show(request, ctx, who)


def _show(request: Request, ctx: Ctx, who: Viewer) -> Response:
    tenant = shown_tenant(who)
    counted = ctx.windows.read(ctx.database, tenant)
    data = ctx.database.read(lambda connection: read_fleet(connection, tenant, counted))
    return show(
        request, who, "plans.html", data.at, data=data, why=_why_planned(data),
        certificate=data.body.get("certificate") or {},
        **{name: data.body.get(name, ())[:MOST_REASONS] for name in ("heldBack", "unserved", "unplaced")},
    )  # fmt: skip


def _why_planned(data: ConsoleData) -> str:
    """Returns a sentence that says what called for the plan in force."""
    word = (data.plan or {}).get("reason") or ""
    reason = reason_of(word)
    return reason.sentence if reason else word
