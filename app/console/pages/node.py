"""A node: its GPUs, what runs there, and what happened to it."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from app.access import AccessVerb, Noun, may
from app.api.requests import Ctx
from app.console.data import read_node
from app.console.forms import form_token
from app.console.node_page import describe_node
from app.console.page_answer import show, shown_tenant
from app.console.refusals import unknown_name
from app.console.visitor import Viewer
from app.problem import HttpProblem
from app.store.fleet import cordons

router = APIRouter(include_in_schema=False)

DONE = {
    "cordon": "You cordoned it: nothing new is placed there.",
    "drain": "You asked to drain it: what runs there moves away, new copies first.",
    "uncordon": "You uncordoned it: plans may use it again.",
}


@router.get("/nodes/{name}")
def node_page(request: Request, ctx: Ctx, who: Viewer, name: str) -> Response:
    return show_node(request, ctx, who, name)


def show_node(
    request: Request, ctx: Ctx, who: Viewer, name: str, refused: HttpProblem | None = None
) -> Response:  # fmt: skip
    """Shows the node, with what may be done with it; `refused` says why the last attempt was not made."""
    tenant = shown_tenant(who)
    data, minutes = ctx.database.read(lambda connection: read_node(connection, tenant, name))
    if not data.nodes:
        raise unknown_name("node")
    kept_off = [] if tenant else ctx.database.read(lambda connection: cordons.list_cordons(connection, name))
    return show(
        request, who, "node.html", data.at, status=refused.status if refused else 200,
        node=describe_node(data, minutes), cordons=kept_off, refused=refused,
        form=form_token(who) if may(who, Noun.CORDON, AccessVerb.WRITE) else "",
        said=DONE.get(request.query_params.get("done", ""), ""),
    )  # fmt: skip
