"""Lists the audit trail, newest first."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, Field

from app.access import AccessVerb, Noun, require
from app.api.pages import NEWEST, answer_page, mark_of
from app.api.requests import Ctx, Who
from app.store.world import audit
from app.store.world.audit import AuditFilter
from app.store.world.objects import rfc3339

router = APIRouter(prefix="/api/v1/audit", tags=["audit"])


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
    before = mark_of(query.cursor, NEWEST)
    wanted = AuditFilter(**query.model_dump(exclude={"limit", "cursor"}))
    rows = ctx.database.read(lambda connection: audit.page(connection, before, query.limit + 1, wanted))
    return answer_page("AuditList", rows, query.limit, lambda row: row["id"], _wire)


def _wire(row: dict[str, Any]) -> dict[str, Any]:
    return {
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
