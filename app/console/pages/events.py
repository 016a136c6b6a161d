"""The list of events, the newest first."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response
from sqlalchemy import Connection

from app.api.requests import Ctx
from app.console.page_answer import show, shown_tenant
from app.console.visitor import Viewer
from app.store.fleet import observed
from app.store.world import events
from app.store.world.events import EventFilter

router = APIRouter(include_in_schema=False)

PAGE_ROWS = 100


@router.get("/events")
def events_page(request: Request, ctx: Ctx, who: Viewer) -> Response:
    wanted = EventFilter(tenant=shown_tenant(who))

    def read(connection: Connection) -> tuple[object, object]:
        return observed.moment(connection), events.recent(connection, wanted, PAGE_ROWS)

    at, found = ctx.database.read(read)
    return show(request, who, "events.html", at, events=found)  # type: ignore[arg-type]
