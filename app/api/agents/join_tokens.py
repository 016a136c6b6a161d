"""Creates, lists and revokes the one-time tokens with which nodes join."""

from __future__ import annotations

from operator import attrgetter
from typing import Annotated, Literal, TypedDict

from fastapi import Body, Path, Request
from pydantic import Field
from sqlalchemy import Connection

from app import tokens as secrets
from app.access import AccessVerb, Noun, require
from app.api import requests
from app.api.pages import Cursor, Limit, cut_page, mark_of
from app.api.replies import Reply, TypedRouter, write_row
from app.api.requests import By, Ctx, NoBody, Who, answer, write_once
from app.api.tokens import Label, Wire
from app.control.domain.events import Reason, event_of
from app.problem import HttpProblem
from app.store.access import join_tokens
from app.store.access.join_tokens import ListedJoinToken
from app.store.world import audit, events
from app.store.world.objects import rfc3339
from app.wire import MomentText, PageMetadataWire, Secret

router = TypedRouter(prefix="/api/v1", tags=["tokens"])


class JoinTokenWire(TypedDict):
    """A token with which a node joins once."""

    id: str
    node: str | None
    createdBy: str
    createdAt: MomentText
    expiresAt: MomentText
    state: Literal["valid", "used", "expired"]
    usedAt: MomentText | None
    usedBy: str | None


class JoinTokenListWire(TypedDict):
    """A list of JoinToken objects."""

    kind: Literal["JoinTokenList"]
    metadata: PageMetadataWire
    items: list[JoinTokenWire]


class PublicJoinTokenWire(TypedDict):
    """A new join token without its secret."""

    id: str
    node: str | None
    expiresAt: MomentText


class NewJoinTokenWire(PublicJoinTokenWire):
    """A join token with its secret."""

    token: Secret


class JoinTokenRequest(Wire):
    """The body that asks for a one-time token. A token with `node` works for that name only."""

    node: Label | None = None
    expires_in_seconds: Annotated[int, Field(ge=1, le=7 * 86400)] = 900


@router.post("/jointokens", status_code=201, summary="Create a one-time token with which a node can join")
def create_join_token(
    request: Request, who: Who, by: By, wanted: Annotated[JoinTokenRequest, Body()], raw: requests.Body
) -> Reply[NewJoinTokenWire]:
    require(who, Noun.JOIN_TOKEN, AccessVerb.WRITE)

    def create(connection: Connection) -> Reply[NewJoinTokenWire]:
        new = secrets.new(secrets.JOIN_PREFIX)
        ends = join_tokens.insert(
            connection,
            token_id=new.id,
            secret_hash=new.secret_hash,
            node=wanted.node or "",
            created_by=who.id,
            expires_in_seconds=wanted.expires_in_seconds,
        )
        public: PublicJoinTokenWire = {"id": new.id, "node": wanted.node, "expiresAt": rfc3339(ends)}
        audit.record(connection, [by.entry("create", Noun.JOIN_TOKEN, name=new.id, after=public)])
        message = f"join token {new.id} was created"
        events.record(connection, [event_of(Reason.TOKEN_CREATED, message, kind=Noun.JOIN_TOKEN, name=new.id)])
        return answer({**public, "token": new.text}, 201)

    return write_once(request, raw, create)


@router.get("/jointokens", summary="Join tokens, without their secrets")
def list_join_tokens(
    ctx: Ctx,
    who: Who,
    limit: Limit = 100,
    cursor: Cursor = "",
) -> Reply[JoinTokenListWire]:
    require(who, Noun.JOIN_TOKEN, AccessVerb.READ)
    after = mark_of(cursor, "")
    rows = ctx.database.read(lambda connection: join_tokens.page(connection, after, limit + 1))
    metadata, items = cut_page(rows, limit, attrgetter("id"), _wire)
    return answer({"kind": "JoinTokenList", "metadata": metadata, "items": items})


@router.delete("/jointokens/{token_id}", summary="Revoke a join token: no node can join with it any more")
def revoke_join_token(
    request: Request,
    who: Who,
    by: By,
    token_id: Annotated[str, Path(max_length=40, pattern=r"^[a-z0-9-]+$")],
    _body: NoBody,
) -> Reply[JoinTokenWire]:
    require(who, Noun.JOIN_TOKEN, AccessVerb.WRITE)

    def revoke(connection: Connection) -> Reply[JoinTokenWire]:
        row = join_tokens.revoke(connection, token_id)
        if row is None:
            raise HttpProblem("not-found", f"there is no join token {token_id}")
        audit.record(connection, [by.entry("revoke", Noun.JOIN_TOKEN, name=row.id, after=_wire(row))])
        message = f"join token {row.id} was revoked"
        events.record(connection, [event_of(Reason.TOKEN_REVOKED, message, kind=Noun.JOIN_TOKEN, name=row.id)])
        return answer(_wire(row))

    return write_once(request, b"", revoke)


def _wire(row: ListedJoinToken) -> JoinTokenWire:
    return write_row(JoinTokenWire, row, state="used" if row.used_at else "expired" if row.expired else "valid")
