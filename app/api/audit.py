"""Lists the audit trail, newest first."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from operator import itemgetter
from typing import Annotated, Literal, TypedDict

from fastapi import Query
from pydantic import BaseModel, Field

from app.access import AccessVerb, Noun, require
from app.api.pages import NEWEST, cut_page, mark_of
from app.api.replies import Reply, TypedRouter, write_row
from app.api.requests import Ctx, Who, answer
from app.manifests.model import Free
from app.store.world import audit
from app.store.world.audit import AuditFilter
from app.wire import MomentText, PageMetadataWire

router = TypedRouter(prefix="/api/v1/audit", tags=["audit"])


class AuditEntryWire(TypedDict):
    """Who did what, with the object before and after."""

    id: int
    at: MomentText
    requestId: str
    principal: str
    scope: str
    verb: str
    outcome: str
    kind: str
    name: str
    principalTenant: str | None
    tenant: str | None
    detail: str | None
    before: Free | None
    after: Free | None


class AuditListWire(TypedDict):
    """A list of AuditEntry objects."""

    kind: Literal["AuditList"]
    metadata: PageMetadataWire
    items: list[AuditEntryWire]


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
def list_audit(ctx: Ctx, who: Who, query: Annotated[AuditQuery, Query()]) -> Reply[AuditListWire]:
    require(who, Noun.AUDIT, AccessVerb.READ)
    before = mark_of(query.cursor, NEWEST)
    wanted = AuditFilter(**query.model_dump(exclude={"limit", "cursor"}))
    rows = ctx.database.read(lambda connection: audit.page(connection, before, query.limit + 1, wanted))
    metadata, items = cut_page(rows, query.limit, itemgetter("id"), partial(write_row, AuditEntryWire))
    return answer({"kind": "AuditList", "metadata": metadata, "items": items})
