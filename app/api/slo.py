"""SLOs of services: attainment, burn rates, and what is left of each allowance of late requests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response

from app.access import AccessVerb, Noun, Reach, require
from app.api.requests import Ctx, Who, answer
from app.control.tell import slo
from app.store.fleet.loads import WindowSums
from app.store.world.slos import slos

router = APIRouter(prefix="/api/v1/slo", tags=["slo"])


@router.get("", summary="Attainment and burn rates of every service, by window")
def attainment(
    ctx: Ctx, who: Who, tenant: Annotated[str, Query(max_length=63, description="Only this tenant's")] = ""
) -> Response:  # fmt: skip
    """attainment: the share answered in time. A burn rate of 1 spends a month's allowance in a month."""
    if require(who, Noun.ATTAINMENT, AccessVerb.READ, tenant) is Reach.OWN:
        tenant = who.tenant
    counted = ctx.windows.read(ctx.database, tenant)
    promised = ctx.database.read(lambda connection: slos(connection, tenant))
    return answer({"kind": "AttainmentList", "items": _assessed(promised, counted)})


def _assessed(promised: Sequence[tuple[str, dict[str, Any]]], counted: WindowSums) -> list[dict[str, Any]]:
    assessed = slo.assess_all(counted, {name: promise["percentile"] for name, promise in promised})
    return [
        {
            "service": name,
            "latencyMs": promise.get("latencyMs"),
            "ttftMs": promise.get("ttftMs"),
            "tpotMs": promise.get("tpotMs"),
            "percentile": promise["percentile"],
            "attainment": dict(assessed[name].attainment),
            "burnRates": dict(assessed[name].burn_rates),
            "budgetLeft": assessed[name].budget_left,
            "alarm": assessed[name].alarm or None,
        }
        for name, promise in promised
    ]
