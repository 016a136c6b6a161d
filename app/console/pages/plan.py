"""A plan: its state, what it changes and why, its proof, its rollout, and what an operator may do with it."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from fastapi import APIRouter, Request, Response
from sqlalchemy import Connection

from app.access import AccessVerb, Noun, may
from app.api.plans import plan_wire
from app.api.plans.plan_wire import PlanWire
from app.api.plans.plans import PlanDifferenceWire, read_difference, read_whole
from app.api.requests import Ctx
from app.console import plan_page
from app.console.data import read_moves
from app.console.forms import form_token
from app.console.moves import MoveMap
from app.console.page_answer import show, shown_tenant
from app.console.page_request import read_id
from app.console.refusals import unknown_name
from app.console.visitor import Viewer
from app.problem import HttpProblem
from app.store.database import clock
from app.store.plans import approval_hold, plan_reads
from app.store.plans.approval_hold import ApprovalHold
from app.store.world import events
from app.store.world.events import EventFilter, RecordedEvent

router = APIRouter(include_in_schema=False)

MOST_REASONS = 30
MOST_SERVICES = 200
MOST_EVENTS = 30


@dataclass(frozen=True, slots=True)
class PlanPage:
    """The data of the page, all of one moment."""

    at: datetime
    moment: datetime  # of the plan
    plan: PlanWire
    difference: PlanDifferenceWire | None  # None where the other plan is not kept
    forms: list[plan_page.PlanForm] = field(default_factory=list)
    events: list[RecordedEvent] = field(default_factory=list)
    in_force: int = 0
    hold: ApprovalHold | None = None
    moves: MoveMap | None = None


@router.get("/plans/{generation}")
def plan_page_of(request: Request, ctx: Ctx, who: Viewer, generation: str) -> Response:
    return show_plan(request, ctx, who, read_plan_number(generation))


def show_plan(
    request: Request, ctx: Ctx, who: Viewer, generation: int, refused: HttpProblem | None = None
) -> Response:  # fmt: skip
    """Shows the plan, with what may be done with it; `refused` says why the last attempt was not made."""
    tenant, against = shown_tenant(who), read_id(request.query_params.get("against", ""))
    found = ctx.database.read(lambda connection: read_page(connection, tenant, generation, against))
    writes = may(who, Noun.PLAN, AccessVerb.WRITE)
    done = request.query_params.get("done", "") if writes and request.method == "GET" else ""
    plan = found.plan
    changed = [
        line for line in (found.difference["services"] if found.difference else ()) if line["service"].count("/") == 1
    ]
    return show(
        request, who, "plan.html", found.at, status=refused.status if refused else 200, page=found, plan=plan,
        pinned={"against": str(found.difference["against"] or "")} if found.difference else {},
        form=form_token(who) if writes else "", refused=refused, said=plan_page.said(done, generation),
        progress=plan_page.rollout_lines(plan), against=against,
        certificate=plan.get("certificate") or {}, most=MOST_REASONS, currency=ctx.settings.currency,
        services=changed[:MOST_SERVICES], more_services=max(0, len(changed) - MOST_SERVICES),
    )  # fmt: skip


def read_page(connection: Connection, tenant: str, generation: int, against: int | None) -> PlanPage:
    """Reads a plan with what it changes; `against` is the plan to compare it with, by default its base."""
    row = plan_reads.read_head(connection, generation)
    if row is None:
        raise unknown_name("plan")
    plan = read_whole(connection, generation, tenant)
    try:
        difference = read_difference(connection, generation, against, tenant)
    except HttpProblem:
        difference = None
    in_force = plan_reads.read_generation_in_force(connection)
    about = EventFilter(kind="Plan", name=f"p{generation}")
    base = row["base"]
    is_base_kept = base is not None and plan_reads.read_head(connection, base) is not None
    return PlanPage(
        at=clock.moment(connection),
        moment=row["at"],
        plan=plan,
        difference=difference,
        forms=[] if tenant else plan_page.plan_forms(plan, in_force, is_base_kept),
        events=[] if tenant else events.recent(connection, about, MOST_EVENTS),
        in_force=in_force,
        hold=None if tenant else approval_hold.find(connection),
        moves=_read_moves(connection, difference, tenant) if difference else None,
    )


def _read_moves(connection: Connection, difference: PlanDifferenceWire, tenant: str) -> MoveMap:
    """Returns the nodes that the plan changes against the one that it is compared with."""
    before, after = (
        (plan_wire.body(connection, number) if number else None) or plan_wire.NOTHING
        for number in (difference["against"], difference["generation"])
    )
    if tenant:
        before, after = plan_wire.select_tenant(before, tenant), plan_wire.select_tenant(after, tenant)
    return read_moves(connection, before, after, tenant)


def read_plan_number(text: str) -> int:
    """Returns the number of a plan; an unknown plan for what is no number."""
    number = read_id(text)
    if not number:
        raise unknown_name("plan")
    return number
