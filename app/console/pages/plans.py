"""The list of plans, the newest first, and what waits for a person."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from fastapi import APIRouter, Request, Response
from sqlalchemy import Connection

from app.access import AccessVerb, Noun, may
from app.api.plans import plan_actions, plan_wire
from app.api.plans.plan_wire import PlanHeadWire
from app.api.requests import Ctx
from app.console import plan_page
from app.console.forms import change, form_token, read_form
from app.console.page_answer import redirect, show, shown_tenant
from app.console.page_request import read_text
from app.console.visitor import Viewer
from app.problem import HttpProblem
from app.store.database import clock, lease
from app.store.database.lease import Lease
from app.store.plans import approval_hold, plan_reads
from app.store.plans.approval_hold import ApprovalHold
from app.store.world import job_list

router = APIRouter(include_in_schema=False)

PAGE_ROWS = 20
NEWEST = 2**62


class PlanRow(PlanHeadWire):
    """A plan of the list, with its moment and the owners of what it changes."""

    moment: datetime
    owners: str


@dataclass(frozen=True, slots=True)
class PlanList:
    """A page of plans, and what is true of all."""

    at: datetime
    rows: list[PlanRow] = field(default_factory=list)
    older: int = 0  # the page after this one begins before this plan; 0: there is none
    in_force: int = 0
    waiting: int = 0
    hold: ApprovalHold | None = None
    leader: Lease | None = None


@router.get("/plans")
def plans_page(request: Request, ctx: Ctx, who: Viewer) -> Response:
    return _show(request, ctx, who)


@router.get("/plans/resume")
def back_to_plans(_who: Viewer) -> Response:
    """Leads to the list from the address that a refused form leaves in the browser."""
    return redirect("/plans")


@router.post("/plans/resume")
def resume_fleet(request: Request, ctx: Ctx, who: Viewer) -> Response:
    """Ends the wait for approval after a rollback."""
    read_form(request, who)
    try:
        change(request, who, plan_actions.resume_fleet)
    except HttpProblem as problem:
        if problem.status != 409:
            raise
        return _show(request, ctx, who, problem)
    return redirect("/plans?done=resume-fleet")


def _show(request: Request, ctx: Ctx, who: Viewer, refused: HttpProblem | None = None) -> Response:
    tenant = shown_tenant(who)
    text = read_text(request.query_params, "before")
    before = int(text) if text.isascii() and text.isdigit() and len(text) < 18 else 0
    found = ctx.database.read(lambda connection: _read(connection, tenant, before or NEWEST))
    writes = may(who, Noun.PLAN, AccessVerb.WRITE)
    return show(
        request, who, "plans.html", found.at, status=refused.status if refused else 200, plans=found, before=before,
        currency=ctx.settings.currency,
        form=form_token(who) if writes else "", refused=refused,
        said=plan_page.said(request.query_params.get("done", "") if writes else "", 0),
    )  # fmt: skip


def _read(connection: Connection, tenant: str, before: int) -> PlanList:
    rows = plan_reads.page(connection, before, PAGE_ROWS + 1, tenant)
    heads = [plan_wire.head(row, tenant) for row in rows[:PAGE_ROWS]]
    jobs = job_list.are_jobs(connection, {name for plan in heads for name in plan["services"]})
    shown: list[PlanRow] = [
        {**plan, "moment": row["at"], "owners": plan_page.spell_owners(plan["services"], jobs)}
        for plan, row in zip(heads, rows, strict=False)
    ]
    return PlanList(
        at=clock.moment(connection),
        rows=shown,
        older=shown[-1]["generation"] if len(rows) > PAGE_ROWS else 0,
        in_force=plan_reads.read_generation_in_force(connection),
        waiting=0 if tenant else plan_reads.newest_waiting(connection),
        hold=None if tenant else approval_hold.find(connection),
        leader=None if tenant else lease.current(connection),
    )
