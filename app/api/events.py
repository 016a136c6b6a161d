"""Lists events: decisions, faults, budgets, each under a reason that never changes its name."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from operator import attrgetter
from typing import Annotated, Literal, TypedDict

from fastapi import Query
from pydantic import BaseModel, Field

from app.access import AccessVerb, Noun, Reach, require
from app.api import cursors
from app.api.pages import cut_page
from app.api.replies import Reply, TypedRouter, write_row
from app.api.requests import Ctx, Who, answer
from app.control.domain.events import Reason
from app.manifests.faults import escape, nearest
from app.problem import HttpProblem
from app.store.world import events
from app.store.world.events import EventFilter
from app.wire import MomentText, PageMetadataWire, Severity

router = TypedRouter(prefix="/api/v1/events", tags=["events"])

SEVERITIES = ("info", "warning", "alarm")


class EventWire(TypedDict):
    """What happened; `times` counts repetitions."""

    id: int
    at: MomentText
    lastAt: MomentText
    times: int
    reason: str
    severity: Severity
    kind: str | None
    tenant: str | None
    name: str | None
    message: str
    generation: int | None


class EventListWire(TypedDict):
    """A list of Event objects."""

    kind: Literal["EventList"]
    metadata: PageMetadataWire
    items: list[EventWire]


class EventQuery(BaseModel):
    """The query parameters of a list of events; each narrows it."""

    reason: Annotated[list[str], Field(max_length=50, description="Any of these")] = []
    severity: Annotated[list[str], Field(max_length=3, description="info, warning, alarm")] = []
    kind: Annotated[str, Field(max_length=40, description="Service, Job, Node, Plan, ...")] = ""
    tenant: Annotated[str, Field(max_length=63)] = ""
    name: Annotated[str, Field(max_length=63)] = ""
    since: Annotated[datetime | None, Field(description="At this moment or later")] = None
    generation: Annotated[int | None, Field(ge=1, lt=2**62, description="Caused by this plan")] = None
    limit: Annotated[int, Field(ge=1, le=500)] = 100
    cursor: Annotated[str, Field(max_length=1000)] = ""


@router.get("", summary="What happened, the last first; repetitions within an hour are counted as one event")
def list_events(ctx: Ctx, who: Who, query: Annotated[EventQuery, Query()]) -> Reply[EventListWire]:
    """A tenant sees only its own events."""
    is_own = require(who, Noun.EVENT, AccessVerb.READ, query.tenant) is Reach.OWN
    _refuse_unknown("reason", query.reason, [str(reason) for reason in Reason])
    _refuse_unknown("severity", query.severity, list(SEVERITIES))
    limit = query.limit
    wanted = EventFilter(
        before=cursors.decode(query.cursor, int)[0] if query.cursor else None,
        kind=query.kind,
        tenant=who.tenant if is_own else query.tenant,
        name=query.name,
        reasons=query.reason,
        severities=query.severity,
        since=query.since,
        generation=query.generation,
    )
    rows = ctx.database.read(lambda connection: events.recent(connection, wanted, limit + 1))
    metadata, items = cut_page(rows, limit, attrgetter("id"), partial(write_row, EventWire))
    return answer({"kind": "EventList", "metadata": metadata, "items": items})


def _refuse_unknown(parameter: str, given: list[str], known: list[str]) -> None:
    for word in given:
        if word not in known:
            meant = nearest(word, known)
            hint = f"; did you mean {meant}?" if meant else ""
            raise HttpProblem("bad-request", f"{parameter} {escape(word)!r} is not known{hint}")
