"""What happened: decisions, faults, budgets, in reasons that do not change."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response

from app.access import AccessVerb, Noun, Reach, require
from app.api import cursors
from app.api.requests import Ctx, Who, answer
from app.control.domain.events import Reason
from app.manifests.faults import escaped, nearest
from app.problem import HttpProblem
from app.store.world import events
from app.store.world.events import EventFilter, RecordedEvent
from app.store.world.objects import rfc3339

router = APIRouter(prefix="/api/v1/events", tags=["events"])

SEVERITIES = ("info", "warning", "alarm")


@router.get("", summary="What happened, newest first; the same within an hour is counted")
def list_events(
    ctx: Ctx,
    who: Who,
    reason: Annotated[list[str], Query(max_length=50, default_factory=list, description="Any of these")],
    severity: Annotated[list[str], Query(max_length=3, default_factory=list, description="info, warning, alarm")],
    kind: Annotated[str, Query(max_length=40, description="Service, Job, Node, Plan, ...")] = "",
    tenant: Annotated[str, Query(max_length=63)] = "",
    name: Annotated[str, Query(max_length=63)] = "",
    since: Annotated[datetime | None, Query(description="Seen at this moment or later")] = None,
    generation: Annotated[int | None, Query(ge=1, lt=2**62, description="That came with this plan")] = None,
    limit: Annotated[int, Query(ge=1, le=500)] = 100,
    cursor: Annotated[str, Query(max_length=1000)] = "",
) -> Response:
    """A tenant is told of its own."""
    if require(who, Noun.EVENT, AccessVerb.READ, tenant) is Reach.OWN:
        tenant = who.tenant
    for given, known in ((reason, [str(one) for one in Reason]), (severity, list(SEVERITIES))):
        for word in given:
            if word not in known:
                meant = nearest(word, known)
                raise HttpProblem("bad-request", f"{escaped(word)!r} is not known" + (f"; {meant}?" if meant else ""))
    wanted = EventFilter(
        before=cursors.decode(cursor, int)[0] if cursor else None,
        kind=kind,
        tenant=tenant,
        name=name,
        reasons=reason,
        severities=severity,
        since=since,
        generation=generation,
    )
    rows = ctx.database.read(lambda connection: events.recent(connection, wanted, limit + 1))
    following = cursors.encode(rows[limit - 1].id) if len(rows) > limit else None
    items = [_wire(row) for row in rows[:limit]]
    return answer({"kind": "EventList", "metadata": {"next": following}, "items": items})


def _wire(row: RecordedEvent) -> dict[str, Any]:
    return {
        "id": row.id,
        "at": rfc3339(row.at),
        "lastAt": rfc3339(row.last_at),
        "times": row.times,
        "reason": row.reason,
        "severity": row.severity,
        "kind": row.kind or None,
        "tenant": row.tenant or None,
        "name": row.name or None,
        "message": row.message,
        "generation": row.generation,
    }
