"""SLOs of services: attainment, burn rates, and what is left of each allowance of late requests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal, TypedDict

from fastapi import Query

from app.access import AccessVerb, Noun, Reach, require
from app.api.replies import Reply, TypedRouter
from app.api.requests import Ctx, Who, answer
from app.control.tell import slo
from app.store.fleet.loads import WindowSums
from app.store.world.slos import ServiceSlo, slos

router = TypedRouter(prefix="/api/v1/slo", tags=["slo"])


class ServiceAttainmentWire(TypedDict):
    """The SLO of a service: the share answered in time and the burn rate, by window."""

    service: str
    latencyMs: float | None
    ttftMs: float | None
    tpotMs: float | None
    budgetLeft: float | None
    percentile: float
    attainment: dict[str, float | None]
    burnRates: dict[str, float | None]
    alarm: str | None


class AttainmentListWire(TypedDict):
    """A list of ServiceAttainment objects."""

    kind: Literal["AttainmentList"]
    items: list[ServiceAttainmentWire]


@router.get("", summary="Attainment and burn rates of every service, by window")
def attainment(
    ctx: Ctx, who: Who, tenant: Annotated[str, Query(max_length=63, description="Only this tenant's")] = ""
) -> Reply[AttainmentListWire]:  # fmt: skip
    """attainment: the share answered in time. A burn rate of 1 spends a month's allowance in a month."""
    if require(who, Noun.ATTAINMENT, AccessVerb.READ, tenant) is Reach.OWN:
        tenant = who.tenant
    counted = ctx.windows.read(ctx.database, tenant)
    promised = ctx.database.read(lambda connection: slos(connection, tenant))
    return answer({"kind": "AttainmentList", "items": _assess(promised, counted)})


def _assess(promised: Sequence[tuple[str, ServiceSlo]], counted: WindowSums) -> list[ServiceAttainmentWire]:
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
