"""A plan: its state, what it changes and why, its proof, its rollout, and what an operator may do with it."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from fastapi import APIRouter, Request, Response
from sqlalchemy import Connection

from app.access import AccessVerb, Noun, may, require
from app.api import plan_actions
from app.api.plans import read_difference, read_whole
from app.api.requests import Ctx
from app.console import plan_page
from app.console.forms import change, form_token, read_form, read_message
from app.console.links import plan_link
from app.console.page_answer import show, shown_tenant, to_page
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
SHOWN_AGAIN = (400, 404, 409, 422)  # refusals that the page shows; 403 has a page of its own
ACTIONS = {move.verb: move for move in plan_actions.MOVES}


@dataclass(frozen=True, slots=True)
class PlanPage:
    """What the page shows, of one moment."""

    at: datetime
    moment: datetime  # of the plan
    plan: dict[str, Any]
    difference: dict[str, Any] | None  # None where the other plan is not kept
    forms: list[plan_page.PlanForm] = field(default_factory=list)
    events: list[RecordedEvent] = field(default_factory=list)
    in_force: int = 0
    hold: ApprovalHold | None = None


@router.get("/plans/{generation}")
def plan_page_of(request: Request, ctx: Ctx, who: Viewer, generation: str) -> Response:
    return _show(request, ctx, who, _number(generation))


@router.get("/plans/{generation}/{verb}")
def back_to_plan(generation: str, verb: str, _who: Viewer) -> Response:
    """Leads to the plan from the address that a refused form leaves in the browser."""
    if verb not in (*ACTIONS, "rollback"):
        raise HttpProblem("not-found", f"There is no page {verb[:40]} of a plan.")
    return to_page(plan_link(_number(generation)))


@router.post("/plans/{generation}/rollback")
def roll_back(request: Request, ctx: Ctx, who: Viewer, generation: str) -> Response:
    """Asks the leader to go back to an earlier plan."""
    fields, number = read_form(request, who), _number(generation)
    require(who, Noun.PLAN, AccessVerb.WRITE)
    to = _number(fields.get("to", ""))
    try:
        change(request, who, lambda connection, by: plan_actions.ask_rollback(connection, by, number, to))
    except HttpProblem as problem:
        return _refused(request, ctx, who, number, problem)
    return to_page(f"{plan_link(number)}?done=rollback")


@router.post("/plans/{generation}/{verb}")
def act(request: Request, ctx: Ctx, who: Viewer, generation: str, verb: str) -> Response:
    """Approves, rejects, pauses, resumes or aborts the plan."""
    fields, number, action = read_form(request, who), _number(generation), ACTIONS.get(verb)
    if action is None:
        raise HttpProblem("not-found", f"There is no action {verb[:40]} of a plan.")
    require(who, Noun.PLAN, AccessVerb.WRITE)
    message = read_message(fields)
    try:
        change(request, who, lambda connection, by: plan_actions.move(connection, by, number, action, message))
    except HttpProblem as problem:
        return _refused(request, ctx, who, number, problem)
    return to_page(f"{plan_link(number)}?done={verb}")


def _refused(request: Request, ctx: Ctx, who: Viewer, generation: int, problem: HttpProblem) -> Response:
    if problem.status not in SHOWN_AGAIN:
        raise problem
    return _show(request, ctx, who, generation, problem)


def _show(
    request: Request, ctx: Ctx, who: Viewer, generation: int, refused: HttpProblem | None = None
) -> Response:  # fmt: skip
    tenant, against = shown_tenant(who), _given(request.query_params.get("against", ""))
    found = ctx.database.read(lambda connection: _read(connection, tenant, generation, against))
    writes = may(who, Noun.PLAN, AccessVerb.WRITE)
    done = request.query_params.get("done", "") if writes and request.method == "GET" else ""
    plan = found.plan
    return show(
        request, who, "plan.html", found.at, status=refused.status if refused else 200, page=found, plan=plan,
        form=form_token(who) if writes else "", refused=refused, said=plan_page.said(done, generation),
        why=plan_page.why_planned(plan), progress=plan_page.rollout_lines(plan), against=against,
        certificate=plan.get("certificate") or {}, most=MOST_REASONS, currency=ctx.settings.currency,
        services=(found.difference or {}).get("services", ())[:MOST_SERVICES],
    )  # fmt: skip


def _read(connection: Connection, tenant: str, generation: int, against: int | None) -> PlanPage:
    row = plan_reads.read_head(connection, generation)
    if row is None:
        raise unknown_name("plan")
    plan = read_whole(connection, generation, tenant)
    try:
        difference = read_difference(connection, generation, against, tenant)
    except HttpProblem:
        difference = None
    in_force = plan_reads.in_force(connection)
    about = EventFilter(kind="Plan", name=f"p{generation}")
    is_base_kept = bool(row["base"]) and plan_reads.read_head(connection, row["base"]) is not None
    return PlanPage(
        at=clock.moment(connection),
        moment=row["at"],
        plan=plan,
        difference=difference,
        forms=[] if tenant else plan_page.plan_forms(plan, in_force, is_base_kept),
        events=[] if tenant else events.recent(connection, about, MOST_EVENTS),
        in_force=in_force,
        hold=None if tenant else approval_hold.find(connection),
    )


def _number(text: str) -> int:
    """Returns the number of a plan; an unknown plan for what is no number."""
    number = _given(text)
    if not number:
        raise unknown_name("plan")
    return number


def _given(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 18 else None
