"""Creates, lists and revokes tokens; the secret of a token is shown once."""

from __future__ import annotations

from functools import partial
from operator import attrgetter
from typing import Annotated, Literal, TypedDict

from fastapi import Body, Path, Request
from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel
from sqlalchemy import Connection

from app import tokens as secrets
from app.access import AccessVerb, Noun, require
from app.api import requests
from app.api.pages import Cursor, Limit, cut_page, mark_of
from app.api.replies import Reply, TypedRouter, write_row
from app.api.requests import By, Ctx, NoBody, Who, answer, write_once
from app.control.domain.events import Reason, event_of
from app.problem import HttpProblem
from app.store.access import tokens
from app.store.world import audit, events
from app.wire import MomentText, PageMetadataWire, Secret

router = TypedRouter(prefix="/api/v1", tags=["tokens"])

Label = Annotated[str, Field(pattern=r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$", max_length=63)]
YEAR_SECONDS = 366 * 86400


class TokenWire(TypedDict):
    """A token without its secret."""

    id: str
    scope: str
    tenant: str | None
    node: str | None
    gateway: str | None
    label: str
    createdBy: str
    createdAt: MomentText
    expiresAt: MomentText | None
    revokedAt: MomentText | None
    lastUsedAt: MomentText | None


class TokenListWire(TypedDict):
    """A list of Token objects."""

    kind: Literal["TokenList"]
    metadata: PageMetadataWire
    items: list[TokenWire]


class NewTokenWire(TokenWire):
    """A token with its secret."""

    token: Secret


class Wire(BaseModel):
    """A body whose names are spelt in camelCase, without unknown fields."""

    model_config = ConfigDict(extra="forbid", strict=True, alias_generator=to_camel)


class TokenRequest(Wire):
    """The scope of a new token, and how long it is valid."""

    scope: Literal["viewer", "operator", "admin", "node", "gateway"]
    tenant: Label | None = None
    node: Label | None = None
    gateway: Label | None = None
    label: Annotated[str, Field(max_length=100, pattern=r"^[ -~]*$")] = ""
    expires_in_seconds: Annotated[int, Field(ge=1, le=10 * YEAR_SECONDS)] | None = None


@router.post("/tokens", status_code=201, summary="Create a token; its text is shown once")
def create_token(
    request: Request, who: Who, by: By, wanted: Annotated[TokenRequest, Body()], raw: requests.Body
) -> Reply[NewTokenWire]:
    require(who, Noun.TOKEN, AccessVerb.WRITE)
    if wanted.tenant and wanted.scope not in ("viewer", "operator"):
        raise HttpProblem("invalid", f"a token of scope {wanted.scope} cannot be bound to a tenant")
    if (wanted.scope == "node") != (wanted.node is not None):
        raise HttpProblem("invalid", "node is required for the scope node, and not allowed for any other")
    if (wanted.scope == "gateway") != (wanted.gateway is not None):
        raise HttpProblem("invalid", "gateway is required for the scope gateway, and not allowed for any other")

    def create(connection: Connection) -> Reply[NewTokenWire]:
        new = secrets.new()
        row = tokens.insert(
            connection,
            tokens.TokenDraft(
                id=new.id,
                secret_hash=new.secret_hash,
                scope=wanted.scope,
                tenant=wanted.tenant or "",
                node=wanted.node or "",
                gateway=wanted.gateway or "",
                label=wanted.label,
                created_by=tokens.name_maker(connection, who.id),
                expires_in_seconds=wanted.expires_in_seconds,
            ),
        )
        audit.record(connection, [by.entry("create", Noun.TOKEN, name=row.id, after=write_row(TokenWire, row))])
        message = f"token {row.id} of scope {row.scope} was created"
        events.record(connection, [event_of(Reason.TOKEN_CREATED, message, kind=Noun.TOKEN, name=row.id)])
        return answer({**write_row(TokenWire, row), "token": new.text}, 201)

    return write_once(request, raw, create)


@router.get("/tokens", summary="Tokens, without their secrets")
def list_tokens(
    ctx: Ctx,
    who: Who,
    limit: Limit = 100,
    cursor: Cursor = "",
) -> Reply[TokenListWire]:
    require(who, Noun.TOKEN, AccessVerb.READ)
    after = mark_of(cursor, "")
    rows = ctx.database.read(lambda connection: tokens.page(connection, after, limit + 1))
    metadata, items = cut_page(rows, limit, attrgetter("id"), partial(write_row, TokenWire))
    return answer({"kind": "TokenList", "metadata": metadata, "items": items})


@router.delete("/tokens/{token_id}", summary="Revoke a token; its open watches end")
def revoke_token(
    request: Request,
    ctx: Ctx,
    who: Who,
    by: By,
    token_id: Annotated[str, Path(max_length=40, pattern=r"^[a-z0-9-]+$")],
    _body: NoBody,
) -> Reply[TokenWire]:
    require(who, Noun.TOKEN, AccessVerb.WRITE)

    def revoke(connection: Connection) -> Reply[TokenWire]:
        row = tokens.revoke(connection, token_id)
        if row is None:
            raise HttpProblem("not-found", f"there is no token {token_id}")
        audit.record(connection, [by.entry("revoke", Noun.TOKEN, name=row.id, after=write_row(TokenWire, row))])
        message = f"token {row.id} of scope {row.scope} was revoked"
        events.record(connection, [event_of(Reason.TOKEN_REVOKED, message, kind=Noun.TOKEN, name=row.id)])
        return answer(write_row(TokenWire, row))

    response = write_once(request, b"", revoke)
    ctx.authenticator.forget(token_id)
    return response
