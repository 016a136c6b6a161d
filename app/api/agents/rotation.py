"""Rotates a node's token: the old token requests its successor, and is revoked when the successor is first used."""

from __future__ import annotations

from typing import Annotated, TypedDict

from fastapi import Path, Request
from sqlalchemy import Connection

from app import tokens as secrets
from app.access import AccessVerb, Noun, Scope, require
from app.api.replies import Reply, TypedRouter
from app.api.requests import By, Ctx, Who, answer
from app.nodes import metrics
from app.problem import HttpProblem
from app.store.access import rotation, tokens
from app.store.access.tokens import TokenRow
from app.store.world import audit
from app.store.world.objects import rfc3339
from app.wire import MomentText, Secret

router = TypedRouter(prefix="/api/v1/nodes", tags=["tokens"])

DAY_SECONDS = 86400


class PublicNodeTokenWire(TypedDict):
    """The token of a node without its secret."""

    id: str
    node: str
    issuedAt: MomentText
    expiresAt: MomentText | None


class NodeTokenWire(PublicNodeTokenWire):
    """The token of a node."""

    token: Secret


@router.post("/{name}/token", status_code=201, summary="Request the node's next token with its current one")
def rotate(
    request: Request, ctx: Ctx, who: Who, by: By, name: Annotated[str, Path(max_length=63)]
) -> Reply[NodeTokenWire]:
    """An agent that lost the answer asks again: a successor that was never used is replaced.

    Once a successor was used, the old token lives for another minute, and a request with it raises an alarm.
    """
    require(who, Noun.NODE_TOKEN, AccessVerb.WRITE, name)

    def replace_token(connection: Connection) -> Reply[NodeTokenWire] | HttpProblem:
        in_use = rotation.make_room(connection, who.id)
        if in_use == "":
            return secrets.explain_revocation()
        if in_use is not None:
            audit.record(connection, [secrets.write_reuse_alarm(who.id, name, in_use)])
            metrics.NODE_TOKEN_REUSE.inc()
            return HttpProblem("conflict", "this token has a successor, which is in use")
        new = secrets.new()
        row = tokens.insert(
            connection,
            tokens.TokenDraft(
                id=new.id,
                secret_hash=new.secret_hash,
                scope=Scope.NODE,
                node=name,
                created_by=who.id,
                expires_in_seconds=ctx.settings.node_token_days * DAY_SECONDS,
            ),
        )
        rotation.set_successor(connection, who.id, new.id)
        audit.record(connection, [by.entry("rotate", Noun.TOKEN, name=new.id, after=describe_token(row))])
        return answer({**describe_token(row), "token": new.text}, 201)

    outcome = ctx.database.write(replace_token)
    if isinstance(outcome, HttpProblem):
        raise outcome
    return outcome


def describe_token(row: TokenRow) -> PublicNodeTokenWire:
    """Returns a node's token without its secret."""
    ends = rfc3339(row.expires_at) if row.expires_at else None
    return {"id": row.id, "node": row.node, "issuedAt": rfc3339(row.created_at), "expiresAt": ends}
