"""SLOs of services: attainment, burn rates, and what is left of each allowance of late requests."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from sqlalchemy import Connection

from app.access import AccessVerb, Noun, Reach, require
from app.api.requests import Ctx, Who, answer
from app.control.tell import slo
from app.manifests.model import Kind
from app.store.world import objects
from app.store.world.objects import Selection

router = APIRouter(prefix="/api/v1/slo", tags=["slo"])

PAGE = 1000


@router.get("", summary="Attainment and burn rates of every service, by window")
def attainment(
    ctx: Ctx, who: Who, tenant: Annotated[str, Query(max_length=63, description="Only this tenant's")] = ""
) -> Response:  # fmt: skip
    """attainment: the share answered in time. A burn rate of 1 spends a month's allowance in a month."""
    if require(who, Noun.ATTAINMENT, AccessVerb.READ, tenant) is Reach.OWN:
        tenant = who.tenant
    return answer({"kind": "AttainmentList", "items": ctx.database.read(lambda c: _all(c, tenant))})


def _all(connection: Connection, tenant: str) -> list[dict[str, Any]]:
    promised = promises(connection, tenant)
    kept = slo.assess_all(connection, {name: promise["percentile"] for name, promise in promised})
    return [
        {
            "service": name,
            "latencyMs": promise["latencyMs"],
            "percentile": promise["percentile"],
            "attainment": dict(kept[name].attainment),
            "burnRates": dict(kept[name].burn_rates),
            "budgetLeft": kept[name].budget_left,
            "alarm": kept[name].alarm or None,
        }
        for name, promise in promised
    ]


def promises(connection: Connection, tenant: str) -> list[tuple[str, dict[str, Any]]]:
    """Returns every service and its SLO, by name."""
    found: list[tuple[str, dict[str, Any]]] = []
    after = ("", "")
    while page := objects.page(connection, Selection(Kind.SERVICE, tenant), after, PAGE):
        for stored in page:
            promise: Any = stored.spec["slo"]
            found.append((f"{stored.tenant}/{stored.name}", promise))
        after = (page[-1].tenant, page[-1].name)
    return found
