"""Plans: their history, their content, their differences and records, and the actions of operators on them."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request, Response
from sqlalchemy import Connection

from app.access import AccessVerb, Noun, Reach, require
from app.api import plan_actions, plan_wire, requests
from app.api.no_plan import NONE_YET, explain_no_plan
from app.api.pages import NEWEST, Cursor, Limit, answer_page, mark_of
from app.api.requests import JSON, By, Ctx, Message, Who, answer, write_once
from app.api.solvers import with_solvers
from app.control.answer.explain.difference import ServiceDifference, describe_difference, find_differences
from app.problem import HttpProblem
from app.store.plans import approval_hold, plan_reads

router = APIRouter(prefix="/api/v1/plans", tags=["plans"])

Generation = Annotated[int, Path(ge=1, lt=NEWEST, description="The plan's number")]


@router.get("", summary="Every decision, newest first")
def list_plans(
    ctx: Ctx,
    who: Who,
    limit: Limit = 100,
    cursor: Cursor = "",
) -> Response:
    """A tenant sees the plans that changed something of its own."""
    tenant = who.tenant if require(who, Noun.PLAN, AccessVerb.READ) is Reach.OWN else ""
    before = mark_of(cursor, NEWEST)
    rows = ctx.database.read(lambda connection: plan_reads.page(connection, before, limit + 1, tenant))
    return answer_page("PlanList", rows, limit, lambda row: row["generation"], lambda row: plan_wire.head(row, tenant))


@router.get("/current", summary="The plan in force, or the newest plan if none is")
def current_plan(ctx: Ctx, who: Who) -> Response:
    granted = require(who, Noun.PLAN, AccessVerb.READ)

    def read(connection: Connection) -> dict[str, Any]:
        generation = plan_reads.in_force(connection) or plan_reads.newest(connection)
        if not generation:
            raise HttpProblem("not-found", NONE_YET if granted is Reach.OWN else explain_no_plan(connection))
        return read_whole(connection, generation, who.tenant if granted is Reach.OWN else "")

    return answer(ctx.database.read(read))


@router.get("/hold", summary="Whether plans wait for approval since a rollback")
def plan_hold(ctx: Ctx, who: Who) -> Response:
    require(who, Noun.PLAN, AccessVerb.READ)
    return answer(plan_actions.hold_wire(ctx.database.read(approval_hold.find)))


@router.delete("/hold", summary="Resume the fleet after a rollback: plans follow the policy's mode again")
def end_plan_hold(request: Request, who: Who, by: By, body: requests.Body) -> Response:
    require(who, Noun.PLAN, AccessVerb.WRITE)
    requests.refuse_body(body)
    return write_once(request, body, lambda connection: answer(plan_actions.resume_fleet(connection, by)))


@router.get("/{generation}", summary="A plan: instances, certificate, reasons, held-back changes and its rollout")
def get_plan(ctx: Ctx, who: Who, generation: Generation) -> Response:
    """A tenant gets its own part of the plan, and the size of the rest."""
    tenant = who.tenant if require(who, Noun.PLAN, AccessVerb.READ) is Reach.OWN else ""
    return answer(ctx.database.read(lambda connection: read_whole(connection, generation, tenant)))


@router.get("/{generation}/diff", summary="What a plan changes, service by service; compared with its base by default")
def diff_plan(
    ctx: Ctx,
    who: Who,
    generation: Generation,
    against: Annotated[int | None, Query(ge=0, lt=NEWEST, description="Another plan; 0: nothing at all")] = None,
) -> Response:
    tenant = who.tenant if require(who, Noun.PLAN, AccessVerb.READ) is Reach.OWN else ""

    return answer(ctx.database.read(lambda connection: read_difference(connection, generation, against, tenant)))


@router.get(
    "/{generation}/record",
    summary="Everything a plan was made from, and the decision: enough to replay it offline",
)
def plan_record(ctx: Ctx, who: Who, generation: Generation) -> Response:
    require(who, Noun.PLAN_RECORD, AccessVerb.READ)

    def read(connection: Connection) -> bytes:
        from app.control.answer import replay

        try:
            record = replay.record_of(connection, generation)
        except KeyError:
            raise HttpProblem("gone", f"the snapshot of plan {generation} is no longer kept") from None
        if record is None:
            raise plan_actions.missing(generation)
        return replay.to_json(record)

    return Response(with_solvers(lambda: ctx.database.read(read)), media_type=JSON)


def _route(move: plan_actions.PlanAction) -> None:
    @router.post(f"/{{generation}}/{move.verb}", summary=move.summary, operation_id=f"{move.verb}Plan")
    def act(
        request: Request, who: Who, by: By, body: requests.Body, generation: Generation, message: Message = ""
    ) -> Response:
        require(who, Noun.PLAN, AccessVerb.WRITE)
        requests.refuse_body(body)

        def write(connection: Connection) -> Response:
            return answer(plan_actions.move(connection, by, generation, move, message))

        return write_once(request, body, write)


for _move in plan_actions.MOVES:
    _route(_move)


@router.post(
    "/{generation}/rollback", summary="Undo a plan: bring nodes back to what it replaced, or to an earlier plan"
)
def rollback_plan(
    request: Request, who: Who, by: By, body: requests.Body, generation: Generation,
    to: Annotated[int | None, Query(ge=1, lt=NEWEST, description="An earlier plan; default: the one it replaced")]
    = None,
) -> Response:  # fmt: skip
    """The leader makes a new plan of it, judged on today's rates; then plans wait for approval: see the hold."""
    require(who, Noun.PLAN, AccessVerb.WRITE)
    requests.refuse_body(body)

    def write(connection: Connection) -> Response:
        return answer(plan_actions.ask_rollback(connection, by, generation, to), 202)

    return write_once(request, body, write)


def read_whole(connection: Connection, generation: int, tenant: str) -> dict[str, Any]:
    """Returns a plan with its body; for a tenant its own part."""
    row, body = plan_reads.read_head(connection, generation), plan_wire.body(connection, generation)
    if row is None or body is None:
        raise plan_actions.missing(generation)
    return plan_wire.head(row, tenant) | (plan_wire.of_tenant(body, tenant) if tenant else body)


def read_difference(connection: Connection, generation: int, against: int | None, tenant: str) -> dict[str, Any]:
    """Returns what a plan changes for each service, compared with its base or another plan."""
    row = plan_reads.read_head(connection, generation)
    after = plan_wire.body(connection, generation)
    if row is None or after is None:
        raise plan_actions.missing(generation)
    other = (row["base"] or 0) if against is None else against
    before = plan_wire.body(connection, other) if other else {}
    if before is None:
        if against is not None:
            raise plan_actions.missing(other)
        other, before = 0, {}
    found = [
        line for line in find_differences(before, after, after["heldBack"])
        if not tenant or line.service.startswith(f"{tenant}/")
    ]  # fmt: skip
    parts = [_difference(line) for line in found if line.is_changed or line.reasons]
    same = sum(1 for line in found if not (line.is_changed or line.reasons))
    costs = {} if tenant else {"cost": {"before": _cost(before), "after": _cost(after)}}
    return {"generation": generation, "against": other, "services": parts, "unchanged": same, **costs}


def _cost(plan: dict[str, Any]) -> dict[str, float] | None:
    certificate = plan.get("certificate")
    return {name: certificate[name] for name in ("cost", "resourceCost", "unservedCost")} if certificate else None


def _difference(difference: ServiceDifference) -> dict[str, Any]:
    return {
        "service": difference.service,
        "words": describe_difference(difference),
        "before": _camel(asdict(difference.before)),
        "after": _camel(asdict(difference.after)),
        **{name: getattr(difference, name) for name in ("started", "stopped", "moved", "resized", "retuned", "kept")},
        "reasons": list(difference.reasons),
    }


def _camel(shapes: dict[str, Any]) -> dict[str, Any]:
    return {
        "instances": shapes["instances"],
        "ratePerSecond": shapes["rate_per_second"],
        "unservedPerSecond": shapes["unserved_per_second"],
        "shapes": list(shapes["on"]),
    }
