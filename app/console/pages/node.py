"""A node: its GPUs, what runs there, and what happened to it."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request, Response
from sqlalchemy import Connection

from app.api.requests import Ctx
from app.console.data import ConsoleData, read_node
from app.console.node_page import describe_node
from app.console.page_answer import show, shown_tenant
from app.console.refusals import unknown_name
from app.console.visitor import Viewer
from app.store.world import events
from app.store.world.events import EventFilter, RecordedEvent

router = APIRouter(include_in_schema=False)

MOST_EVENTS = 30


@router.get("/nodes/{name}")
def node_page(request: Request, ctx: Ctx, who: Viewer, name: str) -> Response:
    tenant = shown_tenant(who)

    def read(connection: Connection) -> tuple[ConsoleData, dict[int, dict[str, Any]], list[RecordedEvent]]:
        found, minutes = read_node(connection, tenant, name)
        wanted = EventFilter(kind="Node", name=name)
        return found, minutes, [] if tenant else events.recent(connection, wanted, MOST_EVENTS)

    data, minutes, happened = ctx.database.read(read)
    if not data.nodes:
        raise unknown_name("node")
    return show(request, who, "node.html", data.at, node=describe_node(data, minutes), events=happened)
