"""The list of events, the newest first, filtered by severity, kind, name and words; each links to its subject."""

from __future__ import annotations

from datetime import datetime

from fastapi import APIRouter, Request, Response
from sqlalchemy import Connection

from app.api.requests import Ctx
from app.console.page_answer import show, shown_tenant
from app.console.page_request import EVENT_KINDS, SEVERITIES, EventsQuery, read_events_query
from app.console.visitor import Viewer
from app.store.database import clock
from app.store.world import events
from app.store.world.events import EventFilter, RecordedEvent

router = APIRouter(include_in_schema=False)

PAGE_ROWS = 100


@router.get("/events")
def events_page(request: Request, ctx: Ctx, who: Viewer) -> Response:
    query, own = read_events_query(request.query_params), shown_tenant(who)

    def read(connection: Connection) -> tuple[datetime, list[RecordedEvent]]:
        wanted = _filter(query, own)
        return clock.moment(connection), events.recent(connection, wanted, PAGE_ROWS + 1) if wanted else []

    at, found = ctx.database.read(read)
    return show(
        request, who, "events.html", at, query=query, events=found[:PAGE_ROWS], severities=SEVERITIES,
        kinds=EVENT_KINDS, older=found[PAGE_ROWS - 1].id if len(found) > PAGE_ROWS else 0,
    )  # fmt: skip


def _filter(query: EventsQuery, own: str) -> EventFilter | None:
    """Returns the filter; None where it can let nothing through, as another tenant's name can."""
    tenant, _, name = query.name.rpartition("/")
    if own and tenant not in ("", own):
        return None
    return EventFilter(
        before=query.before or None,
        kind=query.kind,
        tenant=own or tenant,
        name=name,
        severities=[query.severity] if query.severity else [],
        text=query.find,
    )
