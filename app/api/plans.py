"""Plans: their history, their content, their differences and records, and the actions of operators on them."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request, Response
from sqlalchemy import Connection

from app.access import AccessVerb, Noun, Reach, require
from app.api import plan_wire, requests
from app.api.no_plan import NONE_YET, explain_no_plan
from app.api.pages import NEWEST, Cursor, Limit, answer_page, mark_of
from app.api.requests import JSON, By, Ctx, Who, answer, write_once
from app.api.solvers import with_solvers
from app.control.answer.explain.difference import ServiceDifference, describe_difference, find_differences
from app.control.domain.decision import PlanState
from app.control.domain.events import Reason, event_of
from app.problem import HttpProblem
from app.store.plans import plan_reads, plans
from app.store.world import audit, events

router = APIRouter(prefix="/api/v1/plans", tags=["plans"])

Generation = Annotated[int, Path(ge=1, lt=NEWEST, description="The plan's number")]
Message = Annotated[str, Query(max_length=500, pattern=r"^[^\x00-\x1f\x7f]*$", description="Why, for the record")]


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
        return _whole(connection, generation, who.tenant if granted is Reach.OWN else "")

    return answer(ctx.database.read(read))


@router.get("/{generation}", summary="A plan: instances, certificate, reasons, held-back changes and its rollout")
def get_plan(ctx: Ctx, who: Who, generation: Generation) -> Response:
    """A tenant gets its own part of the plan, and the size of the rest."""
    tenant = who.tenant if require(who, Noun.PLAN, AccessVerb.READ) is Reach.OWN else ""
    return answer(ctx.database.read(lambda connection: _whole(connection, generation, tenant)))


@router.get("/{generation}/diff", summary="What a plan changes, service by service; compared with its base by default")
def diff_plan(
    ctx: Ctx,
    who: Who,
    generation: Generation,
    against: Annotated[int | None, Query(ge=0, lt=NEWEST, description="Another plan; 0: nothing at all")] = None,
) -> Response:
    tenant = who.tenant if require(who, Noun.PLAN, AccessVerb.READ) is Reach.OWN else ""

    def read(connection: Connection) -> dict[str, Any]:
        row = plan_reads.read_head(connection, generation)
        after = plan_wire.body(connection, generation)
        if row is None or after is None:
            raise _missing(generation)
        other = (row["base"] or 0) if against is None else against
        before = plan_wire.body(connection, other) if other else {}
        if before is None:
            if against is not None:
                raise _missing(other)
            other, before = 0, {}
        found = [
            line for line in find_differences(before, after, after["heldBack"])
            if not tenant or line.service.startswith(f"{tenant}/")
        ]  # fmt: skip
        parts = [_difference(line) for line in found if line.is_changed or line.reasons]
        same = sum(1 for line in found if not (line.is_changed or line.reasons))
        costs = {} if tenant else {"cost": {"before": _cost(before), "after": _cost(after)}}
        return {"generation": generation, "against": other, "services": parts, "unchanged": same, **costs}

    return answer(ctx.database.read(read))


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
            raise _missing(generation)
        return replay.to_json(record)

    return Response(with_solvers(lambda: ctx.database.read(read)), media_type=JSON)


@dataclass(frozen=True, slots=True)
class PlanAction:
    """An action of an operator on a plan: the states that it is allowed in, and the state that it leads to."""

    verb: str
    summary: str
    froms: tuple[PlanState, ...]
    to: PlanState
    done: str
    reason: Reason


MOVES = (
    PlanAction(
        "approve",
        "Approve a plan that waits for approval",
        (PlanState.PROPOSED,),
        PlanState.ROLLING,
        "approved",
        Reason.PLAN_APPROVED,
    ),
    PlanAction(
        "reject",
        "Reject a plan that waits for approval",
        (PlanState.PROPOSED,),
        PlanState.REJECTED,
        "rejected",
        Reason.PLAN_REJECTED,
    ),
    PlanAction(
        "pause",
        "Pause a rollout",
        (PlanState.ROLLING,),
        PlanState.PAUSED,
        "paused",
        Reason.ROLLOUT_PAUSED,
    ),
    PlanAction(
        "resume",
        "Resume a rollout that is paused or has stopped",
        (PlanState.PAUSED, PlanState.STOPPED),
        PlanState.ROLLING,
        "resumed",
        Reason.ROLLOUT_RESUMED,
    ),
    PlanAction(
        "abort",
        "End a rollout at its current step",
        (PlanState.ROLLING, PlanState.PAUSED, PlanState.STOPPED),
        PlanState.ABORTED,
        "aborted",
        Reason.ROLLOUT_ABORTED,
    ),
)
ACTED_UPON = (PlanState.ROLLING, PlanState.PAUSED, PlanState.STOPPED, PlanState.ABORTED, PlanState.DONE)


def _route(move: PlanAction) -> None:
    @router.post(f"/{{generation}}/{move.verb}", summary=move.summary, operation_id=f"{move.verb}Plan")
    def act(
        request: Request, who: Who, by: By, body: requests.Body, generation: Generation, message: Message = ""
    ) -> Response:
        require(who, Noun.PLAN, AccessVerb.WRITE)
        _refuse_body(body)

        def write(connection: Connection) -> Response:
            state = plan_reads.state_of(connection, generation)
            if state is None:
                raise _missing(generation)
            if state not in move.froms:
                raise HttpProblem(
                    "conflict",
                    f"plan {generation} is {state}; only plans that are {_or(move.froms)} can be {move.done}",
                )
            if move.verb == "approve":
                _still_holds(connection, generation)
            else:
                _is_newest(connection, generation, state)
            plan_reads.change_state(connection, generation, move.froms, move.to, who.id, message or None)
            entry = by.entry(move.verb, Noun.PLAN, name=str(generation), detail=f"{state} -> {move.to}")
            audit.record(connection, [entry])
            event = event_of(move.reason, message, kind="Plan", name=f"p{generation}", generation=generation)
            events.record(connection, [event])
            return answer({"generation": generation, "state": move.to, "before": state})

        return write_once(request, body, write)


for _move in MOVES:
    _route(_move)


@router.post("/{generation}/rollback", summary="Undo a plan: bring nodes back to what it replaced")
def rollback_plan(
    request: Request, who: Who, by: By, body: requests.Body, generation: Generation
) -> Response:  # fmt: skip
    """The leader makes a new plan of it, which is rolled out like any other."""
    require(who, Noun.PLAN, AccessVerb.WRITE)
    _refuse_body(body)

    def write(connection: Connection) -> Response:
        state = plan_reads.state_of(connection, generation)
        row = plan_reads.read_head(connection, generation)
        if state is None or row is None:
            raise _missing(generation)
        if state not in ACTED_UPON:
            raise HttpProblem("conflict", f"plan {generation} is {state}: it has not changed any node")
        _is_newest(connection, generation, state)
        if not row["base"] or plan_reads.read_head(connection, row["base"]) is None:
            raise HttpProblem(
                "conflict",
                f"plan {generation} replaced no plan that is still kept: there is nothing to go back to",
            )
        plan_reads.store_request(connection, generation, "rollback", who.id)
        audit.record(connection, [by.entry("rollback", Noun.PLAN, name=str(generation), detail=f"to {row['base']}")])
        return answer({"generation": generation, "state": state, "asked": "rollback", "to": row["base"]}, 202)

    return write_once(request, body, write)


def _whole(connection: Connection, generation: int, tenant: str) -> dict[str, Any]:
    row, body = plan_reads.read_head(connection, generation), plan_wire.body(connection, generation)
    if row is None or body is None:
        raise _missing(generation)
    return plan_wire.head(row, tenant) | (plan_wire.of_tenant(body, tenant) if tenant else body)


def _still_holds(connection: Connection, generation: int) -> None:
    """Refuses a plan whose base is no longer in force, as it would change other things than intended, or must stay."""
    row, current = plan_reads.read_head(connection, generation), plans.in_force(connection)
    base, target = (row and row["base"]) or 0, current.generation if current else 0
    if row is not None and base != target:
        raise HttpProblem("conflict", f"plan {generation} is based on plan {base}, but plan {target} is in force now")
    if current and current.state == PlanState.PAUSED:
        why = f"a person has paused plan {target}; nothing takes its place until it is resumed, aborted or undone"
        raise HttpProblem("conflict", why)
    if current and current.is_unwanted:
        raise HttpProblem("conflict", f"a person has asked to undo plan {target}; that is done first")


def _is_newest(connection: Connection, generation: int, state: str) -> None:
    current = plan_reads.in_force(connection)
    if state in ACTED_UPON and current != generation:
        raise HttpProblem("conflict", f"plan {current} is in force now; plan {generation} is superseded")


def _refuse_body(body: bytes) -> None:
    if re.fullmatch(rb"\s*(\{\s*\})?\s*", body) is None:
        raise HttpProblem("bad-request", "this request takes no body")


def _missing(generation: int) -> HttpProblem:
    return HttpProblem("not-found", f"plan {generation} does not exist or is no longer kept")


def _or(words: tuple[str, ...]) -> str:
    return " or ".join(words)


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
