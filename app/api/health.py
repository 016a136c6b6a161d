"""Liveness, readiness and metrics of the process, and what a token may do."""

from __future__ import annotations

from typing import Literal, TypedDict

from fastapi import Request, Response

from app.api.replies import Reply, TypedRouter
from app.api.requests import Ctx, Who, answer
from app.http import metrics
from app.problem import HttpProblem
from app.store.database import schema, versions
from app.wire import MomentText

router = TypedRouter()


class WhoamiWire(TypedDict):
    """The token of the caller."""

    id: str
    scope: str
    tenant: str | None
    node: str | None
    expiresAt: MomentText | None


class HealthWire(TypedDict):
    """The process is alive."""

    status: Literal["ok"]


class ReadinessWire(TypedDict):
    """The database answers."""

    status: Literal["ready"]
    schema: str
    resourceVersion: int


@router.get("/healthz", tags=["health"], summary="The process is alive")
def healthz() -> Reply[HealthWire]:
    return answer({"status": "ok"})


@router.get("/readyz", tags=["health"], summary="The database answers and its schema is the expected one")
def readyz(ctx: Ctx) -> Reply[ReadinessWire]:
    reason = ctx.database.read(schema.refusal)
    if reason:
        raise HttpProblem("unavailable", reason, headers={"Retry-After": "5"})
    found, streams = ctx.database.read(schema.read_version), ctx.database.read(versions.current)
    return answer({"status": "ready", "schema": found or "", "resourceVersion": streams["object"][0]})


@router.get("/metrics", tags=["health"], summary="Prometheus metrics; needs a token without a tenant")
def scrape(ctx: Ctx, request: Request) -> Response:
    page, media_type = metrics.render(request.headers.get("accept", ""))
    return Response(page, media_type=media_type)


@router.get("/api/v1/whoami", tags=["tokens"], summary="Id, scope, tenant and expiry of this token")
def whoami(who: Who) -> Reply[WhoamiWire]:
    return answer(
        {
            "id": who.id,
            "scope": who.scope,
            "tenant": who.tenant or None,
            "node": who.node or None,
            "expiresAt": who.expires_at.isoformat() if who.expires_at else None,
        }
    )
