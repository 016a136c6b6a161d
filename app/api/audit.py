"""Lists the audit trail, newest first."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, Field

from app.access import AccessVerb, Noun, require
from app.api import cursors
from app.api.requests import Ctx, Who, answer
from app.store.world import audit
from app.store.world.audit import AuditFilter
from app.store.world.objects import rfc3339

router = APIRouter(prefix="/api/v1/audit", tags=["audit"])

NEWEST = 2**62  # above every id


class AuditQuery(BaseModel):
    """The query parameters of a list of audit entries; each narrows it."""

    kind: Annotated[str, Field(max_length=40, description="Service, Node, Token, Cordon, Plan, ...")] = ""
    tenant: Annotated[str, Field(max_length=63, description="Of the object")] = ""
    name: Annotated[str, Field(max_length=63, description="Of the object")] = ""
    principal: Annotated[str, Field(max_length=100, description="The id of the token that did it")] = ""
    verb: Annotated[str, Field(max_length=40, description="create, update, delete, revoke, drain, ...")] = ""
    outcome: Annotated[Literal["", "done", "refused", "alarm"], Field(description="done, refused or alarm")] = ""
    since: Annotated[datetime | None, Field(description="At this moment or later")] = None
    limit: Annotated[int, Field(ge=1, le=500)] = 100
    cursor: Annotated[str, Field(max_length=1000)] = ""


@router.get("", summary="Who did what, before and after, newest first")
def list_audit(ctx: Ctx, who: Who, query: Annotated[AuditQuery, Query()]) -> Response:
    require(who, Noun.AUDIT, AccessVerb.READ)
    limit = query.limit
    before = cursors.decode(query.cursor, int)[0] if query.cursor else NEWEST
    wanted = AuditFilter(**query.model_dump(exclude={"limit", "cursor"}))
    rows = ctx.database.read(lambda connection: audit.page(connection, before, limit + 1, wanted))
    following = cursors.encode(rows[limit - 1]["id"]) if len(rows) > limit else None
    items = [
        {
            "id": row["id"],
            "at": rfc3339(row["at"]),
            "requestId": row["request_id"],
            "principal": row["principal"],
            "scope": row["scope"],
            "principalTenant": row["principal_tenant"] or None,
            "verb": row["verb"],
            "outcome": row["outcome"],
            "kind": row["kind"],
            "tenant": row["tenant"] or None,
            "name": row["name"],
            "detail": row["detail"] or None,
            "before": row["before"],
            "after": row["after"],
        }
        for row in rows[:limit]
    ]
    return answer({"kind": "AuditList", "metadata": {"next": following}, "items": items})
