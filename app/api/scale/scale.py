"""Replicas of workloads in a Kubernetes cluster: what a scaler decided, and what operators say of it."""

from __future__ import annotations

from typing import Annotated

from fastapi import Body, Path, Query, Request
from pydantic import Field

from app.access import AccessVerb, Noun, Reach, require
from app.api import requests
from app.api.pages import NEWEST
from app.api.replies import Reply, TypedRouter
from app.api.requests import By, Ctx, Message, Who, answer, refuse_body, write_once
from app.api.scale import scale_actions
from app.api.scale.scale_actions import ScalePauseWire, ScalePlanWire
from app.api.tokens import Wire
from app.problem import HttpProblem
from app.store.plans import scale_plans

router = TypedRouter(prefix="/api/v1/scale", tags=["scale"])

MOST_NAMED = 1000
Generation = Annotated[int, Path(ge=1, lt=NEWEST, description="The plan's number")]
Target = Annotated[str, Field(max_length=400, pattern=r"^[^/\s]+/[^/\s]+/[^/\s]+$")]


class ScaleWorkloads(Wire):
    """The workloads that are meant, as `shop/Deployment/ranker`."""

    workloads: Annotated[list[Target], Field(min_length=1, max_length=MOST_NAMED)]


@router.get("", summary="The newest plan for replicas of workloads in a cluster, or an earlier one")
def read_scale_plan(
    ctx: Ctx, who: Who, generation: Annotated[int | None, Query(ge=1, lt=NEWEST, description="An earlier plan")] = None
) -> Reply[ScalePlanWire]:
    """A tenant sees the workloads of the namespace of its name."""
    tenant = who.tenant if require(who, Noun.SCALE, AccessVerb.READ) is Reach.OWN else ""
    plan = ctx.database.read(lambda connection: scale_plans.read_plan(connection, generation))
    if plan is None:
        detail = f"plan {generation} for replicas does not exist or is no longer kept"
        raise HttpProblem("not-found", detail if generation else scale_actions.NO_PLAN)
    return answer(scale_actions.plan_wire(plan, namespace=tenant))


@router.post("/pause", summary="Pause all scalers: every workload is advisory until they are resumed")
def pause_scalers(
    request: Request, who: Who, by: By, raw: requests.Body, message: Message = ""
) -> Reply[ScalePauseWire]:
    require(who, Noun.SCALE, AccessVerb.WRITE)
    refuse_body(raw)
    return write_once(request, raw, lambda connection: answer(scale_actions.pause(connection, by, message)))


@router.post("/resume", summary="Resume all scalers: each workload has its own mode again")
def resume_scalers(request: Request, who: Who, by: By, raw: requests.Body) -> Reply[ScalePauseWire]:
    require(who, Noun.SCALE, AccessVerb.WRITE)
    refuse_body(raw)
    return write_once(request, raw, lambda connection: answer(scale_actions.resume(connection, by)))


def _route(action: scale_actions.ScaleAction) -> None:
    @router.post(f"/{{generation}}/{action.verb}", summary=action.summary, operation_id=f"{action.verb}Scale")
    def act(
        request: Request, who: Who, by: By, generation: Generation,
        wanted: Annotated[ScaleWorkloads, Body()], raw: requests.Body,
    ) -> Reply[ScalePlanWire]:  # fmt: skip
        require(who, Noun.SCALE, AccessVerb.WRITE)
        return write_once(
            request, raw, lambda connection: answer(
                scale_actions.act(connection, by, generation, wanted.workloads, action)
            )
        )  # fmt: skip


for _action in scale_actions.ACTIONS:
    _route(_action)
