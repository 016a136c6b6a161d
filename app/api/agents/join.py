"""Lets a node join with a one-time token, or with that of its pod, and gives it the token that it works with."""

from __future__ import annotations

import hmac
import time
from math import ceil
from typing import Annotated

from fastapi import Body, Request
from prometheus_client import Counter
from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy import Connection

from app import tokens as secrets
from app.access import Noun, Principal, Scope
from app.api.agents.rotation import DAY_SECONDS, NodeTokenWire, describe_token
from app.api.replies import Reply, TypedRouter
from app.api.requests import Ctx, answer
from app.api.tokens import Label
from app.context import Context
from app.http.buckets import Buckets
from app.http.metrics import REGISTRY
from app.problem import HttpProblem
from app.store.access import join_tokens, tokens
from app.store.access.join_tokens import JoinTokenRow
from app.store.database import versions
from app.store.world import audit
from app.store.world.audit import AuditEntry
from app.world import service_accounts
from app.world.join import join_node
from app.world.write import Actor

router = TypedRouter(prefix="/api/v1", tags=["tokens"])

JOIN_TOKEN_REUSE = Counter(
    "gpuwright_join_token_reuse", "One-time tokens that were used a second time: stolen?", registry=REGISTRY
)
AUDITED_REFUSALS = Buckets(1 / 60, 10.0)  # by join token, or by pod
POD_JOINS = Buckets(1 / 60, 10.0)  # by node: each ends the node's token and is audited
RETRY = {"Retry-After": "5"}


class JoinRequest(BaseModel):
    """The first request of a node: its token, its name, and its Node spec."""

    model_config = ConfigDict(extra="allow")

    token: Annotated[
        str, Field(max_length=8192, description="A one-time token, or that of a pod where Kubernetes runs agents")
    ]
    node: Label


@router.post("/join", status_code=201, summary="Join as a node with a one-time token; no bearer token needed")
def join(request: Request, ctx: Ctx, wanted: Annotated[JoinRequest, Body()]) -> Reply[NodeTokenWire]:
    parsed = secrets.parse(wanted.token, secrets.JOIN_PREFIX)
    if parsed is not None:
        outcome = _join_with_token(request, ctx, wanted, *parsed)
    elif ctx.review_token is not None and service_accounts.FORM.fullmatch(wanted.token):
        outcome = _join_as_pod(request, ctx, wanted, ctx.review_token)
    else:
        raise HttpProblem("unauthorized", "this is not a join token", headers=secrets.UNAUTHORIZED)
    if isinstance(outcome, HttpProblem):  # returned and not raised, so that its audit entry is committed
        raise outcome
    ctx.authenticator.forget(node=wanted.node)  # the notices tell other replicas
    return outcome


def _join_with_token(
    request: Request, ctx: Context, wanted: JoinRequest, token_id: str, secret: str
) -> Reply[NodeTokenWire] | HttpProblem:
    # Without a lock: a request without a valid token must not make writers wait.
    brought = _check(ctx.database.read(lambda connection: join_tokens.find(connection, token_id)), secret)
    if brought is None:
        raise _refuse()
    was_used = brought.used_at is not None
    newcomer = _name_newcomer(request, f"join:{token_id}")

    def admit(connection: Connection) -> Reply[NodeTokenWire] | HttpProblem:
        if not was_used:
            versions.lock(connection, "object")
        row = _check(join_tokens.lock_for_use(connection, token_id), secret)
        if row is None:
            return _refuse()
        if row.used_at is not None:
            return _raise_alarm(connection, newcomer, row, wanted.node)
        slug, detail = _find_refusal(connection, row, wanted.node)
        if not detail:
            slug, detail = "conflict", join_node(connection, newcomer, wanted.node, wanted.model_extra or {})
        if detail:
            return _refuse_node(connection, newcomer, wanted.node, slug, detail)
        join_tokens.use(connection, row.id, wanted.node)
        return _issue_token(connection, newcomer, wanted.node, ctx.settings.node_token_days)

    return ctx.database.write(admit)


def _join_as_pod(
    request: Request, ctx: Context, wanted: JoinRequest, review_token: service_accounts.ReviewToken
) -> Reply[NodeTokenWire] | HttpProblem:
    """Admits a pod of the agents' service account as the node that Kubernetes has bound its token to."""
    try:
        review = review_token(wanted.token, service_accounts.AUDIENCE)
    except service_accounts.ReviewFailed as failed:
        detail = f"Kubernetes cannot say whose token this is, so try again: {failed}"
        raise HttpProblem("unavailable", detail, headers=RETRY) from None
    slug, refusal = service_accounts.find_refusal(review, ctx.settings.kubernetes_agents, wanted.node)
    if slug == "unauthorized":
        raise HttpProblem(slug, refusal, headers=secrets.UNAUTHORIZED)
    newcomer = _name_newcomer(request, f"kubernetes:{service_accounts.name_holder(review)}")
    if not slug:
        wanted.node = service_accounts.name_admitted(review)  # it has asked by the name that its cluster gives it

    def admit(connection: Connection) -> Reply[NodeTokenWire] | HttpProblem:
        if slug:
            return _refuse_node(connection, newcomer, wanted.node, slug, refusal)
        versions.lock(connection, "object")
        detail = join_node(connection, newcomer, wanted.node, wanted.model_extra or {})
        if detail:
            return _refuse_node(connection, newcomer, wanted.node, "conflict", detail)
        return _issue_token(connection, newcomer, wanted.node, ctx.settings.node_token_days)

    if not slug and (seconds := POD_JOINS.take(wanted.node, time.monotonic())):
        raise HttpProblem(
            "rate-limited", f"node {wanted.node} has joined too often", headers={"Retry-After": str(ceil(seconds))}
        )
    return ctx.database.write(admit)


def _name_newcomer(request: Request, name: str) -> Actor:
    return Actor(Principal(name, Scope.OPERATOR), request.scope["state"]["request_id"])


def _check(row: JoinTokenRow | None, secret: str) -> JoinTokenRow | None:
    """Returns the token if the secret fits it and it has not expired unused.

    A used token raises the alarm even after it has expired: either its holder or the node that used it stole it.
    """
    expected = row.secret_hash if row else bytes(32)
    is_right = hmac.compare_digest(expected, secrets.hash_secret(secret))
    return row if is_right and row and not (row.expired and row.used_at is None) else None


def _refuse() -> HttpProblem:
    return HttpProblem("unauthorized", "this join token is unknown or expired", headers=secrets.UNAUTHORIZED)


def _raise_alarm(connection: Connection, newcomer: Actor, row: JoinTokenRow, node: str) -> HttpProblem:
    """Records that a join token was presented a second time."""
    JOIN_TOKEN_REUSE.inc()
    detail = f"node {row.used_by} used join token {row.id} before, and now {node} presents it"
    _audit(connection, newcomer.entry("join", "Node", name=node, outcome="alarm", detail=detail))
    return HttpProblem("conflict", "this join token has been used; ask for a new one")


def _refuse_node(connection: Connection, newcomer: Actor, node: str, slug: str, detail: str) -> HttpProblem:
    _audit(connection, newcomer.entry("join", "Node", name=node, outcome="refused", detail=detail))
    return HttpProblem(slug, detail)


def _audit(connection: Connection, entry: AuditEntry) -> None:
    """Records a refusal; the holder of a token may repeat it without end, and the audit is kept for a year."""
    if not AUDITED_REFUSALS.take(entry.principal, time.monotonic()):
        audit.record(connection, [entry])


def _find_refusal(connection: Connection, row: JoinTokenRow, node: str) -> tuple[str, str]:
    """Returns why a valid token does not admit this node, as slug and detail; two empty texts where it does."""
    if row.node and row.node != node:
        return "forbidden", f"this join token is not for a node called {node}"
    if not row.node and tokens.node_has_token(connection, node):
        # Otherwise any token for a new node could take the place of every node that has joined.
        return "conflict", f"node {node} has joined already; to join again it needs a join token made for it by name"
    return "", ""


def _issue_token(connection: Connection, newcomer: Actor, node: str, days: float) -> Reply[NodeTokenWire]:
    """Replaces every token of the node with a new one."""
    tokens.revoke_of_nodes(connection, [node])
    new = secrets.new()
    made = tokens.insert(
        connection,
        tokens.TokenDraft(
            id=new.id,
            secret_hash=new.secret_hash,
            scope=Scope.NODE,
            node=node,
            created_by=newcomer.principal.id,
            expires_in_seconds=days * DAY_SECONDS,
        ),
    )
    audit.record(
        connection,
        [
            newcomer.entry("join", "Node", name=node),
            newcomer.entry("create", Noun.TOKEN, name=new.id, after={"scope": "node", **describe_token(made)}),
        ],
    )
    return answer({**describe_token(made), "token": new.text}, 201)
