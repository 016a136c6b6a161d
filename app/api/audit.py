"""Lists the audit trail, newest first."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response

from app.access import AccessVerb, Noun, require
from app.api import cursors
from app.api.requests import Ctx, Who, answer
from app.store.world import audit
from app.store.world.objects import rfc3339

router = APIRouter(prefix="/api/v1/audit", tags=["audit"])

NEWEST = 2**62  # above every id


@router.get("", summary="Who did what, before and after")
def list_audit(
    ctx: Ctx,
    who: Who,
    limit: Annotated[int, Query(ge=1, le=500)] = 100,
    cursor: Annotated[str, Query(max_length=1000)] = "",
) -> Response:
    require(who, Noun.AUDIT, AccessVerb.READ)
    before = cursors.decode(cursor, int)[0] if cursor else NEWEST
    rows = ctx.database.read(lambda connection: audit.page(connection, before, limit + 1))
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
