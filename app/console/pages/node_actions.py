"""An operator's actions on a node: cordon, drain, uncordon, by forms on its page; before a drain a page asks."""

from __future__ import annotations

from datetime import datetime, timedelta

from fastapi import APIRouter, Request, Response
from sqlalchemy import Connection

from app.access import AccessVerb, Noun, may, require
from app.api.agents import cordons
from app.api.agents.cordons import CordonRequest
from app.api.requests import Ctx
from app.console.confirm import Confirmation, confirm_drain
from app.console.data import read_planned
from app.console.forms import change, form_token, read_form, read_message
from app.console.links import node_link
from app.console.page_answer import redirect, show
from app.console.pages.node import show_node
from app.console.refusals import unknown_name
from app.console.visitor import Viewer
from app.problem import HttpProblem
from app.store.database import clock
from app.store.fleet import fleet_map
from app.world.write import Actor

router = APIRouter(include_in_schema=False)

MOST_HOURS = 24 * 365.0
VERBS = ("cordon", "drain", "uncordon")
MOST_AFFECTED = 100  # services and jobs that are listed
SHOWN_AGAIN = (400, 404, 409, 422)


@router.get("/nodes/{name}/{verb}")
def confirm(request: Request, ctx: Ctx, who: Viewer, name: str, verb: str) -> Response:
    """Asks before a drain, with what must move; otherwise leads to the node, which has the other forms."""
    if verb not in VERBS:
        raise HttpProblem("not-found", f"There is no page {verb[:40]} of a node.")
    if verb != "drain" or not may(who, Noun.CORDON, AccessVerb.WRITE):
        return redirect(node_link(name))
    given = request.query_params

    def read(connection: Connection) -> tuple[datetime, Confirmation]:
        found = fleet_map.read_named_nodes(connection, [name])
        if not found:
            raise unknown_name("node")
        gpu, gpus = _gpu(given.get("gpu", "").strip()), found[0].gpus
        if gpu is not None and gpu >= gpus:
            raise HttpProblem("invalid", f"node {name} has {gpus} GPUs, 0 to {gpus - 1}; there is no GPU {gpu}")
        data = read_planned(connection, "")
        hours, message = _hours(given.get("hours", "").strip()), read_message({"message": given.get("message", "")})
        return data.at, confirm_drain(name, gpu, hours, message.strip(), data.body)

    try:
        at, ask = ctx.database.read(read)
    except HttpProblem as problem:
        if problem.slug != "invalid":
            raise
        return show_node(request, ctx, who, name, problem)
    return show(request, who, "confirm.html", at, ask=ask, form=form_token(who), most=MOST_AFFECTED)


@router.post("/nodes/{name}/{verb}")
def act(request: Request, ctx: Ctx, who: Viewer, name: str, verb: str) -> Response:
    """Cordons, drains or uncordons the node or one of its GPUs."""
    fields = read_form(request, who)
    require(who, Noun.CORDON, AccessVerb.WRITE)
    if verb not in VERBS:
        raise HttpProblem("not-found", f"There is no action {verb[:40]} of a node.")

    def write(connection: Connection, by: Actor) -> object:
        given = CordonRequest(gpu=_gpu(fields.get("gpu", "")), message=read_message(fields))
        if verb == "uncordon":
            return cordons.lift(connection, by, name, given)
        if hours := _hours(fields.get("hours", "")):
            given.deadline = clock.now(connection) + timedelta(hours=hours)
        return cordons.place(connection, by, name, "drain" if verb == "drain" else "cordon", given)

    try:
        change(request, who, write)
    except HttpProblem as problem:
        if problem.status not in SHOWN_AGAIN:
            raise
        return show_node(request, ctx, who, name, problem)
    gpu = fields.get("gpu", "")
    return redirect(f"{node_link(name)}?done={verb}{f'&gpu={gpu}' if gpu else ''}")


def _gpu(text: str) -> int | None:
    """Returns the GPU that is meant; None for the whole node."""
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= 4):
        raise HttpProblem("invalid", f"GPU {text[:20]!r} is not understood; allowed: a number, or nothing for all GPUs")
    return int(text)


def _hours(text: str) -> float | None:
    """Returns the hours until the deadline; None for none."""
    if not text:
        return None
    try:
        hours = float(text)
    except ValueError:
        hours = 0.0
    if not 0 < hours <= MOST_HOURS:
        raise HttpProblem("invalid", f"the deadline {text[:20]!r} is not understood; allowed: hours, up to 8760")
    return hours
