"""How nodes join: one-time tokens made, listed and revoked; and a node's first words."""

from __future__ import annotations

import hmac
from typing import Annotated, Any

from fastapi import APIRouter, Body, Path, Query, Request, Response
from prometheus_client import Counter
from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy import Connection

from app import tokens as secrets
from app.access import AccessVerb, Noun, Principal, Scope, require
from app.api import cursors, requests
from app.api.requests import By, Ctx, NoBody, Who, answer, write_once
from app.api.rotation import DAY_SECONDS, describe_token
from app.api.tokens import Label, Wire
from app.http.metrics import REGISTRY
from app.problem import HttpProblem
from app.store.access import join_tokens, tokens
from app.store.access.join_tokens import ListedJoinToken
from app.store.database import versions
from app.store.world import audit
from app.store.world.objects import rfc3339
from app.world.join import join_node
from app.world.write import Actor

router = APIRouter(prefix="/api/v1", tags=["tokens"])

JOIN_TOKEN_REUSE = Counter(
    "gpuwright_join_token_reuse", "One-time tokens that came a second time: stolen?", registry=REGISTRY
)


class JoinTokenRequest(Wire):
    """A one-time token; with `node`, good for that name only."""

    node: Label | None = None
    expires_in_seconds: Annotated[int, Field(ge=1, le=7 * 86400)] = 900


class JoinRequest(BaseModel):
    """A node's first words: its one-time token, its name, and its Node spec."""

    model_config = ConfigDict(extra="allow")

    token: Annotated[str, Field(max_length=200)]
    node: Label


@router.post("/jointokens", status_code=201, summary="A one-time token with which a node joins")
def create_join_token(
    request: Request, who: Who, by: By, wanted: Annotated[JoinTokenRequest, Body()], raw: requests.Body
) -> Response:
    require(who, Noun.JOIN_TOKEN, AccessVerb.WRITE)

    def create(connection: Connection) -> Response:
        new = secrets.new(secrets.JOIN_PREFIX)
        ends = join_tokens.insert(
            connection,
            token_id=new.id,
            secret_hash=new.secret_hash,
            node=wanted.node or "",
            created_by=who.id,
            expires_in_seconds=wanted.expires_in_seconds,
        )
        public = {"id": new.id, "node": wanted.node, "expiresAt": rfc3339(ends)}
        audit.record(connection, [by.entry("create", Noun.JOIN_TOKEN, name=new.id, after=public)])
        return answer({**public, "token": new.text}, 201)

    return write_once(request, raw, create)


@router.get("/jointokens", summary="Join tokens, without their secrets")
def list_join_tokens(
    ctx: Ctx,
    who: Who,
    limit: Annotated[int, Query(ge=1, le=500)] = 100,
    cursor: Annotated[str, Query(max_length=1000)] = "",
) -> Response:
    require(who, Noun.JOIN_TOKEN, AccessVerb.READ)
    after = cursors.decode(cursor, str)[0] if cursor else ""
    rows = ctx.database.read(lambda connection: join_tokens.page(connection, after, limit + 1))
    following = cursors.encode(rows[limit - 1].id) if len(rows) > limit else None
    items = [_wire(row) for row in rows[:limit]]
    return answer({"kind": "JoinTokenList", "metadata": {"next": following}, "items": items})


@router.delete("/jointokens/{token_id}", summary="Revoke a join token: nobody joins with it any more")
def revoke_join_token(
    request: Request,
    who: Who,
    by: By,
    token_id: Annotated[str, Path(max_length=40, pattern=r"^[a-z0-9-]+$")],
    _body: NoBody,
) -> Response:
    require(who, Noun.JOIN_TOKEN, AccessVerb.WRITE)

    def revoke(connection: Connection) -> Response:
        row = join_tokens.revoke(connection, token_id)
        if row is None:
            raise HttpProblem("not-found", f"there is no join token {token_id}")
        audit.record(connection, [by.entry("revoke", Noun.JOIN_TOKEN, name=row.id, after=_wire(row))])
        return answer(_wire(row))

    return write_once(request, b"", revoke)


@router.post("/join", status_code=201, summary="Join as a node with a one-time token; no bearer token needed")
def join(request: Request, ctx: Ctx, wanted: Annotated[JoinRequest, Body()]) -> Response:
    parsed = secrets.parse(wanted.token, secrets.JOIN_PREFIX)
    if parsed is None:
        raise HttpProblem("unauthorized", "this is not a join token", headers=secrets.UNAUTHORIZED)
    token_id, secret = parsed
    newcomer = Actor(Principal(f"join:{token_id}", Scope.OPERATOR), request.scope["state"]["request_id"])

    def once(connection: Connection) -> Response | HttpProblem:
        def refused(slug: str, told: str) -> HttpProblem:
            entry = newcomer.entry("join", "Node", name=wanted.node, outcome="refused", detail=told)
            audit.record(connection, [entry])
            return HttpProblem(slug, told)

        versions.lock(connection, "object")
        row = join_tokens.for_use(connection, token_id)
        expected = row.secret_hash if row else bytes(32)
        right = hmac.compare_digest(expected, secrets.hash_secret(secret))
        # Of one that was used, the time is no matter: whoever brings it now has stolen it, or from whom it was.
        if not right or row is None or (row.expired and row.used_at is None):
            return HttpProblem("unauthorized", "this join token is unknown or expired", headers=secrets.UNAUTHORIZED)
        if row.used_at is not None:
            detail = f"join token {row.id} was used by node {row.used_by} and now by {wanted.node}"
            audit.record(
                connection,
                [newcomer.entry("join", "Node", name=wanted.node, outcome="alarm", detail=detail)],
            )
            JOIN_TOKEN_REUSE.inc()
            return HttpProblem("conflict", "this join token has been used; ask for a new one")
        if row.node and row.node != wanted.node:
            return refused("forbidden", f"this join token is not for a node called {wanted.node}")
        if not row.node and tokens.node_has_token(connection, wanted.node):
            # Else every token for any new node were one for taking the place of all the others.
            told = f"node {wanted.node} has joined already; a join token made for it by name lets it join anew"
            return refused("conflict", told)
        contradiction = join_node(connection, newcomer, wanted.node, wanted.model_extra or {})
        if contradiction:
            return refused("conflict", contradiction)
        tokens.revoke_of_nodes(connection, [wanted.node])
        new = secrets.new()
        made = tokens.insert(
            connection,
            token_id=new.id,
            secret_hash=new.secret_hash,
            scope=Scope.NODE,
            node=wanted.node,
            created_by=newcomer.principal.id,
            expires_in_seconds=ctx.settings.node_token_days * DAY_SECONDS,
        )
        join_tokens.use(connection, row.id, wanted.node)
        audit.record(
            connection,
            [
                newcomer.entry("join", "Node", name=wanted.node),
                newcomer.entry("create", Noun.TOKEN, name=new.id, after={"scope": "node", **describe_token(made)}),
            ],
        )
        return answer({**describe_token(made), "token": new.text}, 201)

    outcome = ctx.database.write(once)
    if isinstance(outcome, HttpProblem):
        raise outcome
    ctx.authenticator.forget(node=wanted.node)  # other replicas hear of it
    return outcome


def _wire(row: ListedJoinToken) -> dict[str, Any]:
    return {
        "id": row.id,
        "node": row.node or None,
        "createdBy": row.created_by,
        "createdAt": rfc3339(row.created_at),
        "expiresAt": rfc3339(row.expires_at),
        "state": "used" if row.used_at else "expired" if row.expired else "valid",
        "usedAt": rfc3339(row.used_at) if row.used_at else None,
        "usedBy": row.used_by or None,
    }
