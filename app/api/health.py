"""Liveness, readiness and metrics of the process, and what a token may do."""

from __future__ import annotations

from fastapi import APIRouter, Response

from app.api.requests import Ctx, Who, answer
from app.http import metrics
from app.problem import HttpProblem
from app.store.database import schema, versions

router = APIRouter()


@router.get("/healthz", tags=["health"], summary="The process is alive")
def healthz() -> Response:
    return answer({"status": "ok"})


@router.get("/readyz", tags=["health"], summary="The database answers and its schema is the expected one")
def readyz(ctx: Ctx) -> Response:
    reason = ctx.database.read(schema.refusal)
    if reason:
        raise HttpProblem("unavailable", reason, headers={"Retry-After": "5"})
    found, streams = ctx.database.read(schema.read_version), ctx.database.read(versions.current)
    return answer({"status": "ready", "schema": found, "resourceVersion": streams["object"][0]})


@router.get("/metrics", tags=["health"], summary="Prometheus metrics; needs a token without a tenant")
def scrape(ctx: Ctx) -> Response:
    return Response(metrics.render(), media_type=metrics.CONTENT_TYPE)


@router.get("/api/v1/whoami", tags=["tokens"], summary="Id, scope, tenant and expiry of this token")
def whoami(who: Who) -> Response:
    return answer(
        {
            "id": who.id,
            "scope": who.scope,
            "tenant": who.tenant or None,
            "node": who.node or None,
            "expiresAt": who.expires_at.isoformat() if who.expires_at else None,
        }
    )
