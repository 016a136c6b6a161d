"""Plans: their history, their content, their differences and records, and the actions of operators on them."""

from __future__ import annotations

from typing import Annotated, Literal, NotRequired, TypeAlias, TypedDict, cast

from fastapi import Path, Query, Request
from msgspec import Meta
from sqlalchemy import Connection

from app.access import AccessVerb, Noun, Reach, require
from app.api import requests
from app.api.answers.solvers import call_solvers
from app.api.pages import NEWEST, Cursor, Limit, cut_page, mark_of
from app.api.plans import plan_actions, plan_wire
from app.api.plans.no_plan import NONE_YET, explain_no_plan
from app.api.plans.plan_actions import PlanActionWire, PlanHoldWire, PlanRollbackWire
from app.api.plans.plan_wire import PlanContentWire, PlanHeadWire, PlanWire
from app.api.replies import Reply, TypedRouter
from app.api.requests import JSON, By, Ctx, Message, Who, answer, write_once
from app.control.answer.explain.difference import find_differences, is_changed
from app.control.answer.explain.difference_wire import JobDifferenceWire, ServiceDifferenceWire
from app.control.answer.explain.job_difference import find_job_differences
from app.control.answer.explain.why_changed import ChangeFacts, read_causes
from app.control.domain.causes import ChangeCauses
from app.manifests.model import Free
from app.problem import HttpProblem
from app.store.plans import approval_hold, plan_reads
from app.wire import PageMetadataWire

router = TypedRouter(prefix="/api/v1/plans", tags=["plans"])

PlanRecord: TypeAlias = Annotated[Free, Meta(description="All that a plan was made from, for `gpuwright replay`")]
Generation = Annotated[int, Path(ge=1, lt=NEWEST, description="The plan's number")]


class PlanListWire(TypedDict):
    """A list of PlanHead objects."""

    kind: Literal["PlanList"]
    metadata: PageMetadataWire
    items: list[PlanHeadWire]


class PlanCostsWire(TypedDict):
    """What a plan costs an hour."""

    cost: float
    resourceCost: float
    unservedCost: float


class PlanCostChangeWire(TypedDict):
    """What two plans cost an hour; null without a certificate."""

    before: PlanCostsWire | None
    after: PlanCostsWire | None


class PlanDifferenceWire(TypedDict):
    """What a plan changes against another; against 0: against nothing."""

    generation: int
    against: int
    services: list[ServiceDifferenceWire]
    unchanged: int  # services
    jobs: list[JobDifferenceWire]
    cost: NotRequired[PlanCostChangeWire]


@router.get("", summary="Every decision, newest first")
def list_plans(
    ctx: Ctx,
    who: Who,
    limit: Limit = 100,
    cursor: Cursor = "",
) -> Reply[PlanListWire]:
    """A tenant sees the plans that changed something of its own."""
    tenant = who.tenant if require(who, Noun.PLAN, AccessVerb.READ) is Reach.OWN else ""
    before = mark_of(cursor, NEWEST)
    rows = ctx.database.read(lambda connection: plan_reads.page(connection, before, limit + 1, tenant))
    metadata, items = cut_page(rows, limit, lambda row: int(row["generation"]), lambda row: plan_wire.head(row, tenant))
    return answer({"kind": "PlanList", "metadata": metadata, "items": items})


@router.get("/current", summary="The plan in force, or the newest plan if none is")
def current_plan(ctx: Ctx, who: Who) -> Reply[PlanWire]:
    granted = require(who, Noun.PLAN, AccessVerb.READ)

    def read(connection: Connection) -> PlanWire:
        generation = plan_reads.read_generation_in_force(connection) or plan_reads.newest(connection)
        if not generation:
            raise HttpProblem("not-found", NONE_YET if granted is Reach.OWN else explain_no_plan(connection))
        return read_whole(connection, generation, who.tenant if granted is Reach.OWN else "")

    return answer(ctx.database.read(read))


@router.get("/hold", summary="Whether plans wait for approval since a rollback")
def plan_hold(ctx: Ctx, who: Who) -> Reply[PlanHoldWire]:
    require(who, Noun.PLAN, AccessVerb.READ)
    return answer(plan_actions.hold_wire(ctx.database.read(approval_hold.find)))


@router.delete("/hold", summary="Resume the fleet after a rollback: plans follow the policy's mode again")
def end_plan_hold(request: Request, who: Who, by: By, body: requests.Body) -> Reply[PlanHoldWire]:
    require(who, Noun.PLAN, AccessVerb.WRITE)
    requests.refuse_body(body)
    return write_once(request, body, lambda connection: answer(plan_actions.resume_fleet(connection, by)))


@router.get("/{generation}", summary="A plan: instances, certificate, reasons, held-back changes and its rollout")
def get_plan(ctx: Ctx, who: Who, generation: Generation) -> Reply[PlanWire]:
    """A tenant gets its own part of the plan, and the size of the rest."""
    tenant = who.tenant if require(who, Noun.PLAN, AccessVerb.READ) is Reach.OWN else ""
    return answer(ctx.database.read(lambda connection: read_whole(connection, generation, tenant)))


@router.get("/{generation}/diff", summary="What a plan changes, service by service; compared with its base by default")
def diff_plan(
    ctx: Ctx,
    who: Who,
    generation: Generation,
    against: Annotated[int | None, Query(ge=0, lt=NEWEST, description="Another plan; 0: nothing at all")] = None,
) -> Reply[PlanDifferenceWire]:
    tenant = who.tenant if require(who, Noun.PLAN, AccessVerb.READ) is Reach.OWN else ""

    return answer(ctx.database.read(lambda connection: read_difference(connection, generation, against, tenant)))


@router.get(
    "/{generation}/record",
    summary="Everything a plan was made from, and the decision: enough to replay it offline",
)
def plan_record(ctx: Ctx, who: Who, generation: Generation) -> Reply[PlanRecord]:
    require(who, Noun.PLAN_RECORD, AccessVerb.READ)

    def read(connection: Connection) -> bytes:
        from app.control.answer import replay

        try:
            record = replay.record_of(connection, generation)
        except KeyError:
            raise HttpProblem("gone", f"the snapshot of plan {generation} is no longer kept") from None
        if record is None:
            raise plan_actions.missing(generation)
        return replay.write_record(record)

    return Reply(call_solvers(lambda: ctx.database.read(read)), media_type=JSON)


def _route(move: plan_actions.PlanAction) -> None:
    @router.post(f"/{{generation}}/{move.verb}", summary=move.summary, operation_id=f"{move.verb}Plan")
    def act(
        request: Request, who: Who, by: By, body: requests.Body, generation: Generation, message: Message = ""
    ) -> Reply[PlanActionWire]:
        require(who, Noun.PLAN, AccessVerb.WRITE)
        requests.refuse_body(body)

        def write(connection: Connection) -> Reply[PlanActionWire]:
            return answer(plan_actions.move(connection, by, generation, move, message))

        return write_once(request, body, write)


for _move in plan_actions.MOVES:
    _route(_move)


@router.post(
    "/{generation}/rollback",
    status_code=202,
    summary="Undo a plan: bring nodes back to what it replaced, or to an earlier plan",
)
def rollback_plan(
    request: Request, who: Who, by: By, body: requests.Body, generation: Generation,
    to: Annotated[int | None, Query(ge=1, lt=NEWEST, description="An earlier plan; default: the one it replaced")]
    = None,
) -> Reply[PlanRollbackWire]:  # fmt: skip
    """The leader makes a new plan of it, judged on today's rates; then plans wait for approval: see the hold."""
    require(who, Noun.PLAN, AccessVerb.WRITE)
    requests.refuse_body(body)

    def write(connection: Connection) -> Reply[PlanRollbackWire]:
        return answer(plan_actions.ask_rollback(connection, by, generation, to), 202)

    return write_once(request, body, write)


def read_whole(connection: Connection, generation: int, tenant: str) -> PlanWire:
    """Returns a plan with its body; for a tenant its own part."""
    row, body = plan_reads.read_head(connection, generation), plan_wire.body(connection, generation)
    if row is None or body is None:
        raise plan_actions.missing(generation)
    content = plan_wire.select_tenant(body, tenant) if tenant else body
    return cast(PlanWire, {**plan_wire.head(row, tenant), **content})


def read_difference(connection: Connection, generation: int, against: int | None, tenant: str) -> PlanDifferenceWire:
    """Returns what a plan changes for each service, compared with its base or another plan."""
    row = plan_reads.read_head(connection, generation)
    after = plan_wire.body(connection, generation)
    if row is None or after is None:
        raise plan_actions.missing(generation)
    other = (row["base"] or 0) if against is None else against
    before = plan_wire.body(connection, other) if other else None
    if before is None:
        if other and against is not None:
            raise plan_actions.missing(other)
        other = 0
    costs = None if tenant else _gpu_costs(before, after)
    causes = read_causes(plan_wire.solved_by(connection, generation)) if other == (row["base"] or 0) else ChangeCauses()
    facts = ChangeFacts(causes, costs, tenant)
    held = (plan_wire.select_tenant(after, tenant) if tenant else after)["heldBack"]
    differences = [
        line for line in find_differences(before, after, held, facts)
        if not tenant or line["service"].startswith(f"{tenant}/")
    ]  # fmt: skip
    parts = [line for line in differences if is_changed(line) or line["reasons"]]
    same = len(differences) - len(parts)
    jobs = [line for line in find_job_differences(before, after) if not tenant or line["job"].startswith(f"{tenant}/")]
    found: PlanDifferenceWire = {
        "generation": generation, "against": other, "services": parts, "unchanged": same, "jobs": jobs,
    }  # fmt: skip
    if not tenant:
        found["cost"] = {"before": _cost(before), "after": _cost(after)}
    return found


def _gpu_costs(before: PlanContentWire | None, after: PlanContentWire) -> tuple[float, float] | None:
    old, new = _cost(before), _cost(after)
    return (old["resourceCost"], new["resourceCost"]) if old and new else None


def _cost(plan: PlanContentWire | None) -> PlanCostsWire | None:
    certificate = plan.get("certificate") if plan else None
    if certificate is None:
        return None
    return {
        "cost": certificate["cost"],
        "resourceCost": certificate["resourceCost"],
        "unservedCost": certificate["unservedCost"],
    }
