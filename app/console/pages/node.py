"""A node: its GPUs, what runs there, and what happened to it."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from app.api.requests import Ctx
from app.console.data import read_node
from app.console.node_page import describe_node
from app.console.page_answer import show, shown_tenant
from app.console.refusals import unknown_name
from app.console.visitor import Viewer

router = APIRouter(include_in_schema=False)


@router.get("/nodes/{name}")
def node_page(request: Request, ctx: Ctx, who: Viewer, name: str) -> Response:
    tenant = shown_tenant(who)
    data, minutes = ctx.database.read(lambda connection: read_node(connection, tenant, name))
    if not data.nodes:
        raise unknown_name("node")
    return show(request, who, "node.html", data.at, node=describe_node(data, minutes))
