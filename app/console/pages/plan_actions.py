"""An operator's actions on a plan: approve, reject, pause, resume, abort, roll back; each by a form on its page."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from app.access import AccessVerb, Noun, may, require
from app.api.plans import plan_actions
from app.api.requests import Ctx
from app.console.confirm import confirm_plan
from app.console.forms import change, form_token, read_form, read_message
from app.console.links import plan_link
from app.console.page_answer import redirect, show, shown_tenant
from app.console.pages.plan import read_page, read_plan_number, show_plan
from app.console.plan_page import CONFIRMED
from app.console.visitor import Viewer
from app.problem import HttpProblem

router = APIRouter(include_in_schema=False)

SHOWN_AGAIN = (400, 404, 409, 422)  # refusals that the page shows; 403 has a page of its own
ACTIONS = {move.verb: move for move in plan_actions.MOVES}


@router.get("/plans/{generation}/{verb}")
def confirm(request: Request, ctx: Ctx, who: Viewer, generation: str, verb: str) -> Response:
    """Asks before a plan is approved or rejected; leads to the plan where there is nothing to ask."""
    if verb not in (*ACTIONS, "rollback"):
        raise HttpProblem("not-found", f"There is no page {verb[:40]} of a plan.")
    number = read_plan_number(generation)
    if verb not in CONFIRMED or not may(who, Noun.PLAN, AccessVerb.WRITE):
        return redirect(plan_link(number))
    found = ctx.database.read(lambda connection: read_page(connection, shown_tenant(who), number, None))
    if verb not in (form.verb for form in found.forms):
        return redirect(plan_link(number))
    ask = confirm_plan(verb, found.plan, found.difference, found.in_force, ctx.settings.currency)
    return show(request, who, "confirm.html", found.at, ask=ask, form=form_token(who), most=0)


@router.post("/plans/{generation}/rollback")
def roll_back(request: Request, ctx: Ctx, who: Viewer, generation: str) -> Response:
    """Asks the leader to go back to an earlier plan."""
    fields, number = read_form(request, who), read_plan_number(generation)
    require(who, Noun.PLAN, AccessVerb.WRITE)
    to = read_plan_number(fields.get("to", ""))
    try:
        change(request, who, lambda connection, by: plan_actions.ask_rollback(connection, by, number, to))
    except HttpProblem as problem:
        return _show_refusal(request, ctx, who, number, problem)
    return redirect(f"{plan_link(number)}?done=rollback")


@router.post("/plans/{generation}/{verb}")
def act(request: Request, ctx: Ctx, who: Viewer, generation: str, verb: str) -> Response:
    """Approves, rejects, pauses, resumes or aborts the plan."""
    fields, number, action = read_form(request, who), read_plan_number(generation), ACTIONS.get(verb)
    if action is None:
        raise HttpProblem("not-found", f"There is no action {verb[:40]} of a plan.")
    require(who, Noun.PLAN, AccessVerb.WRITE)
    message = read_message(fields)
    try:
        change(request, who, lambda connection, by: plan_actions.move(connection, by, number, action, message))
    except HttpProblem as problem:
        return _show_refusal(request, ctx, who, number, problem)
    return redirect(f"{plan_link(number)}?done={verb}")


def _show_refusal(request: Request, ctx: Ctx, who: Viewer, generation: int, problem: HttpProblem) -> Response:
    if problem.status not in SHOWN_AGAIN:
        raise problem
    return show_plan(request, ctx, who, generation, problem)
