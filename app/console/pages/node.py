"""A node: its GPUs, what runs there, what happened to it, and whether plans are kept off it."""

from __future__ import annotations

from collections.abc import Mapping

from fastapi import APIRouter, Request, Response
from sqlalchemy import Connection

from app.access import AccessVerb, Noun, may
from app.api.requests import Ctx
from app.console.data import ConsoleData, read_copies, read_node
from app.console.forms import form_token
from app.console.node_page import NodePage, describe_node
from app.console.page_answer import show, shown_tenant
from app.console.refusals import unknown_name
from app.console.visitor import Viewer
from app.problem import HttpProblem
from app.store.fleet import cordons
from app.store.world import events
from app.store.world.events import EventFilter, RecordedEvent

router = APIRouter(include_in_schema=False)

MOST_EVENTS = 30
LONGEST_GPU = 4  # digits
DONE = {
    "cordon": "You cordoned {it}: nothing new is placed there.",
    "drain": "You asked to drain {it}: what runs there moves away, new copies first.",
    "uncordon": "You uncordoned {it}: plans may use it again.",
}


@router.get("/nodes/{name}")
def node_page(request: Request, ctx: Ctx, who: Viewer, name: str) -> Response:
    return show_node(request, ctx, who, name)


def show_node(
    request: Request, ctx: Ctx, who: Viewer, name: str, refused: HttpProblem | None = None
) -> Response:  # fmt: skip
    """Shows the node, with what may be done with it; `refused` says why the last attempt was not made."""
    tenant = shown_tenant(who)

    def read(connection: Connection) -> tuple[ConsoleData, NodePage | None, list[RecordedEvent]]:
        found, minutes = read_node(connection, tenant, name)
        if not found.nodes:
            return found, None, []
        described = describe_node(found, minutes, read_copies(connection, tenant, name))
        wanted = EventFilter(kind="Node", name=name)
        return found, described, [] if tenant else events.recent(connection, wanted, MOST_EVENTS)

    data, described, happened = ctx.database.read(read)
    if described is None:
        raise unknown_name("node")
    kept_off = [] if tenant else ctx.database.read(lambda connection: cordons.list_cordons(connection, name))
    writes = may(who, Noun.CORDON, AccessVerb.WRITE)
    return show(
        request, who, "node.html", data.at, status=refused.status if refused else 200,
        node=described, events=happened, cordons=kept_off, refused=refused,
        form=form_token(who) if writes else "",
        said=_said(request.query_params) if writes else "",
        may_ask=may(who, Noun.WHAT_IF, AccessVerb.WRITE),
    )  # fmt: skip


def _said(query: Mapping[str, str]) -> str:
    """Returns what the operator has just done; empty for an unknown word."""
    gpu = query.get("gpu", "")
    it = f"GPU {gpu}" if gpu.isascii() and gpu.isdigit() and len(gpu) <= LONGEST_GPU else "it"
    return DONE.get(query.get("done", ""), "").format(it=it)
