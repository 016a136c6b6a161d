"""Actions of operators on plans, for the API and the console: who may, when, and what is recorded of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NotRequired, TypedDict

from sqlalchemy import Connection

from app.access import AccessVerb, Noun, require
from app.control.domain.decision import PlanState
from app.control.domain.events import Reason, event_of
from app.problem import HttpProblem
from app.store.plans import approval_hold, plan_reads, plans
from app.store.plans.approval_hold import ApprovalHold
from app.store.world import audit, events
from app.store.world.objects import rfc3339
from app.wire import MomentText
from app.world.write import Actor


class PlanActionWire(TypedDict):
    """The state of a plan after an action, and before."""

    generation: int
    state: str
    before: str


class PlanHoldWire(TypedDict):
    """Whether plans wait for approval since a rollback of this plan."""

    kind: Literal["PlanHold"]
    held: bool
    generation: NotRequired[int]
    since: NotRequired[MomentText]


class PlanRollbackWire(TypedDict):
    """A rollback that the leader will carry out."""

    generation: int
    state: str
    asked: Literal["rollback"]
    to: int


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
EVER_IN_FORCE = (*ACTED_UPON, PlanState.SUPERSEDED)


def move(connection: Connection, by: Actor, generation: int, action: PlanAction, message: str = "") -> PlanActionWire:
    """Moves a plan to the state that the action leads to; refuses with the reason why it cannot."""
    require(by.principal, Noun.PLAN, AccessVerb.WRITE)
    state = plan_reads.state_of(connection, generation)
    if state is None:
        raise missing(generation)
    if state not in action.froms:
        detail = f"plan {generation} is {state}; only plans that are {_or(action.froms)} can be {action.done}"
        raise HttpProblem("conflict", detail)
    if action.verb == "approve":
        _still_holds(connection, generation)
    else:
        _is_newest(connection, generation, state)
    plan_reads.change_state(connection, generation, action.froms, action.to, by.principal.id, message or None)
    entry = by.entry(action.verb, Noun.PLAN, name=str(generation), detail=f"{state} -> {action.to}")
    audit.record(connection, [entry])
    sentence = f"{by.principal.id} {action.done} plan {generation}{f': {message}' if message else ''}"
    event = event_of(action.reason, sentence, kind="Plan", name=f"p{generation}", generation=generation)
    events.record(connection, [event])
    return {"generation": generation, "state": action.to, "before": state}


def ask_rollback(connection: Connection, by: Actor, generation: int, to: int | None = None) -> PlanRollbackWire:
    """Asks the leader to undo the plan in force, by the plan that it replaced or by an earlier one."""
    require(by.principal, Noun.PLAN, AccessVerb.WRITE)
    state = plan_reads.state_of(connection, generation)
    row = plan_reads.read_head(connection, generation)
    if state is None or row is None:
        raise missing(generation)
    if state not in EVER_IN_FORCE:
        raise HttpProblem("conflict", f"plan {generation} is {state}: it has not changed any node")
    current = plan_reads.read_generation_in_force(connection)
    if current != generation:
        again = f"to go back to plan {generation}: gpuwright plan rollback {current} --to {generation}"
        raise HttpProblem("conflict", f"plan {current} is in force now; {again}")
    target = to or row["base"] or 0
    earlier = plan_reads.read_head(connection, target) if target else None
    if to is None and earlier is None:
        detail = f"plan {generation} replaced no plan that is still kept: there is nothing to go back to"
        raise HttpProblem("conflict", detail)
    if earlier is None:
        raise missing(target)
    if target >= generation or earlier["state"] not in EVER_IN_FORCE:
        what = f"is {earlier['state']}" if target != generation else "is the one in force"
        raise HttpProblem(
            "conflict", f"plan {target} {what}; going back leads to a plan before it that was carried out"
        )
    plan_reads.store_request(connection, generation, "rollback", by.principal.id, target)
    audit.record(connection, [by.entry("rollback", Noun.PLAN, name=str(generation), detail=f"to {target}")])
    return {"generation": generation, "state": state, "asked": "rollback", "to": target}


def resume_fleet(connection: Connection, by: Actor) -> PlanHoldWire:
    """Ends the wait for approval that a rollback began."""
    require(by.principal, Noun.PLAN, AccessVerb.WRITE)
    hold = approval_hold.lift(connection)
    if hold is None:
        raise HttpProblem(
            "conflict", "the fleet does not wait for approval after a rollback: there is nothing to resume"
        )
    entry = by.entry("resume", Noun.PLAN, name="fleet", detail=f"held since plan {hold.generation}")
    audit.record(connection, [entry])
    sentence = f"{by.principal.id} resumed the fleet, which was held since plan {hold.generation}"
    events.record(connection, [event_of(Reason.FLEET_RESUMED, sentence, kind="Plan", name=f"p{hold.generation}")])
    return hold_wire(None)


def hold_wire(hold: ApprovalHold | None) -> PlanHoldWire:
    """Returns the hold as the API spells it."""
    if hold is None:
        return {"kind": "PlanHold", "held": False}
    return {"kind": "PlanHold", "held": True, "generation": hold.generation, "since": rfc3339(hold.since)}


def _still_holds(connection: Connection, generation: int) -> None:
    """Refuses a plan whose base is no longer in force, as it would change other things than intended, or must stay."""
    row, current = plan_reads.read_head(connection, generation), plans.read_plan_in_force(connection)
    base, target = (row and row["base"]) or 0, current.generation if current else 0
    if row is not None and base != target:
        raise HttpProblem("conflict", f"plan {generation} is based on plan {base}, but plan {target} is in force now")
    if current and current.state == PlanState.PAUSED:
        why = f"a person has paused plan {target}; nothing takes its place until it is resumed, aborted or undone"
        raise HttpProblem("conflict", why)
    if current and current.is_unwanted:
        raise HttpProblem("conflict", f"a person has asked to undo plan {target}; that is done first")


def _is_newest(connection: Connection, generation: int, state: str) -> None:
    current = plan_reads.read_generation_in_force(connection)
    if state in ACTED_UPON and current != generation:
        raise HttpProblem("conflict", f"plan {current} is in force now; plan {generation} is superseded")


def missing(generation: int) -> HttpProblem:
    """Returns the refusal of a plan that is not there."""
    return HttpProblem("not-found", f"plan {generation} does not exist or is no longer kept")


def _or(words: tuple[str, ...]) -> str:
    return " or ".join(words)
