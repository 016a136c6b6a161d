"""Audits refused writes of agents, gateways and forms of the console: misused tokens, by a fault or by a thief."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator

from fastapi import Request
from starlette.concurrency import run_in_threadpool

from app.access import Principal, Scope
from app.api.requests import actor, context
from app.http.buckets import Buckets
from app.manifests.model import BY_PLURAL
from app.nodes import metrics
from app.problem import HttpProblem
from app.store.database.database import Unavailable
from app.store.world import audit
from app.store.world.audit import AuditEntry

AUDITED = Buckets(0.1, 20.0)  # by token: the audit is kept for a year, and 20 entries suffice


async def audit_overreach(request: Request) -> AsyncIterator[None]:
    """Wraps every route of the router. Agents' reports, which bypass it, are audited where they are taken, and their
    polls write nothing."""
    try:
        yield
    except HttpProblem as problem:
        who: Principal | None = request.scope["state"].get("principal")
        is_harmless = request.method == "GET" or request.url.path.endswith("/report")
        if problem.status == 403 and who is not None and who.scope in (Scope.NODE, Scope.GATEWAY) and not is_harmless:
            await _record(request, who)
        raise


async def _record(request: Request, who: Principal) -> None:
    path = request.url.path[:200]
    detail = f"the token of {who.scope} {who.node or who.gateway} may not {request.method} {path}"
    name = str(request.path_params.get("name", ""))[:63]
    entry = actor(request).entry("write", _kind(path), name=name, outcome="refused", detail=detail)
    await record_refusal(request, entry)


async def record_refusal(request: Request, entry: AuditEntry) -> None:
    """Records a refused write, at a limited rate for each token."""
    if AUDITED.take(entry.principal, time.monotonic()):
        metrics.REFUSED.labels("not_audited").inc()
        return
    try:
        await run_in_threadpool(context(request).database.write, lambda c: audit.record(c, [entry]))
    except Unavailable:
        metrics.REFUSED.labels("not_audited").inc()


def _kind(path: str) -> str:
    """Returns the kind that the path is about, as the audit names it."""
    plural = path.removeprefix("/api/v1/").split("/")[0]
    return str(BY_PLURAL.get(plural, plural[:40]))
