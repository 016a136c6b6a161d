"""What operators say to plans for replicas: all workloads that they name are approved or rejected, or none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple, NotRequired, TypedDict

from sqlalchemy import Connection

from app.access import AccessVerb, Noun, require
from app.api.replies import write_row
from app.control.domain.events import Reason, event_of
from app.problem import HttpProblem
from app.store.plans import scale_pause, scale_plans
from app.store.plans.scale_rows import KIND, ScalePause, ScalePlan, ScaleRow, ScaleState, clean_text
from app.store.world import audit, events
from app.store.world.objects import rfc3339
from app.wire import MomentText
from app.world.write import Actor

NO_PLAN = "no scaler has made a plan yet"


class ScalePauseWire(TypedDict):
    """Whether a person has paused all scalers, and how many writes that had begun may still be done."""

    kind: Literal["ScalePause"]
    paused: bool
    by: NotRequired[str]
    since: NotRequired[MomentText]
    message: NotRequired[str]
    writing: NotRequired[int]


class ScaledWorkloadWire(TypedDict):
    """The replicas that a workload has and should have; `since` is the first plan that said so."""

    namespace: str
    kind: str
    name: str
    service: str
    mode: str
    replicas: int | None
    wanted: int | None
    why: str
    hold: str
    state: str
    since: int
    decidedBy: str | None
    decidedAt: MomentText | None
    resourceVersion: str | None
    writtenAt: MomentText | None
    settledAt: MomentText | None
    outcome: str
    tries: int
    retryAt: MomentText | None


class ScalePlanWire(TypedDict):
    """A plan for replicas of workloads in a cluster; at `confirmedAt` a scaler decided the same again."""

    kind: Literal["ScalePlan"]
    generation: int
    at: MomentText
    confirmedAt: MomentText
    pause: ScalePauseWire
    items: list[ScaledWorkloadWire]


class ScaleAction(NamedTuple):
    """An action of an operator on proposed replicas, and the state that it leads to."""

    verb: str
    summary: str
    states: tuple[ScaleState, ...]  # from which it leads on
    to: ScaleState
    reason: Reason


ACTIONS = (
    ScaleAction(
        "approve",
        "Approve replicas of workloads that wait for it",
        (ScaleState.PROPOSED,),
        ScaleState.APPROVED,
        Reason.REPLICAS_APPROVED,
    ),
    ScaleAction(
        "reject",
        "Reject replicas of workloads that are not written yet",
        (ScaleState.PROPOSED, ScaleState.APPROVED, ScaleState.REFUSED),
        ScaleState.REJECTED,
        Reason.REPLICAS_REJECTED,
    ),
)


def act(connection: Connection, by: Actor, generation: int, names: Sequence[str], action: ScaleAction) -> ScalePlanWire:
    """Carries the action out for every named workload; refuses with the reason of each that does not allow it."""
    require(by.principal, Noun.SCALE, AccessVerb.WRITE)
    scale_plans.lock_plans(connection)
    newest, named = scale_plans.read_plan(connection), scale_plans.read_plan(connection, generation)
    if newest is None or named is None:
        detail = f"plan {generation} for replicas does not exist or is no longer kept" if newest else NO_PLAN
        raise HttpProblem("not-found", detail)
    if newest.pause and action.to is ScaleState.APPROVED:
        raise HttpProblem("conflict", f"all scalers are paused by {newest.pause.by}; resume them, and approve then")
    known = {str(row.target): row for row in newest.rows}
    faults = [fault for name in names if (fault := _find_fault(named, newest, known.get(name), name, action))]
    if faults:
        raise HttpProblem("conflict", "; ".join(faults))
    for row in (known[name] for name in dict.fromkeys(names)):
        if not scale_plans.decide(connection, row, action.to, by.principal.id):
            raise HttpProblem("conflict", f"{row.target} was decided by another just now")
        change, (namespace, *parts) = f"{row.replicas} -> {row.wanted}", row.target
        entry = by.entry(
            action.verb, KIND, tenant=namespace, name="/".join(parts), detail=f"plan {row.generation}: {change}"
        )
        audit.record(connection, [entry])
        message = f"{row.target}: {change} replicas, by plan {row.generation}"
        events.record(connection, [event_of(action.reason, message, kind=KIND, name=str(row.target))])
    found = scale_plans.read_plan(connection, newest.generation)
    assert found is not None
    return plan_wire(found, names)


def pause(connection: Connection, by: Actor, message: str) -> ScalePauseWire:
    """Puts all scalers into advisory from now on; says how many writes had begun, which may still be done."""
    require(by.principal, Noun.SCALE, AccessVerb.WRITE)
    message = clean_text(message)
    if not scale_pause.begin(connection, by.principal.id, message):
        found = scale_pause.find(connection)
        raise HttpProblem("conflict", f"all scalers are paused already, by {found.by if found else 'another'}")
    _note(connection, by, "pause", Reason.SCALERS_PAUSED, message)
    return pause_wire(scale_pause.find(connection))


def resume(connection: Connection, by: Actor) -> ScalePauseWire:
    """Ends the pause: each workload has its own mode again, and what it wants is asked for again."""
    require(by.principal, Noun.SCALE, AccessVerb.WRITE)
    ended = scale_pause.lift(connection)
    if ended is None:
        raise HttpProblem("conflict", "no scaler is paused: there is nothing to resume")
    _note(connection, by, "resume", Reason.SCALERS_RESUMED, f"paused by {ended.by} since {rfc3339(ended.since)}")
    return pause_wire(None)


def _note(connection: Connection, by: Actor, verb: str, reason: Reason, detail: str) -> None:
    audit.record(connection, [by.entry(verb, KIND, name="all", detail=detail)])
    text = f"by {by.principal.id}: {detail}" if detail else f"by {by.principal.id}"
    events.record(connection, [event_of(reason, text, kind=KIND, name="all")])


def pause_wire(found: ScalePause | None) -> ScalePauseWire:
    """Returns whether all scalers are paused, as the API spells it."""
    if found is None:
        return {"kind": "ScalePause", "paused": False}
    return {
        "kind": "ScalePause",
        "paused": True,
        "by": found.by,
        "since": rfc3339(found.since),
        "message": found.message,
        "writing": found.writing,
    }


def _find_fault(named: ScalePlan, newest: ScalePlan, row: ScaleRow | None, name: str, action: ScaleAction) -> str:
    """Returns why the action does not apply to a workload; what decides it is the newest plan."""
    if row is None:
        if name in {str(each.target) for each in named.rows}:
            return f"{name} is no longer adopted in plan {newest.generation}"
        return f"plan {named.generation} has no workload {name}"
    if row.since > named.generation:
        wants = f"which wants {row.wanted} replicas" if row.wanted is not None else "which wants none"
        return f"plan {named.generation} is overtaken for {name} by plan {row.since}, {wants} and is {row.state}"
    if row.state not in action.states:
        allowed = " or ".join(action.states)
        return f"{name} is {row.state} in plan {newest.generation}; only what is {allowed} can be {action.to}"
    return ""


def plan_wire(plan: ScalePlan, names: Sequence[str] | None = None, namespace: str = "") -> ScalePlanWire:
    """Returns a plan as the API spells it: all of it, the workloads that are named, or those of one namespace."""
    return {
        "kind": "ScalePlan",
        "generation": plan.generation,
        "at": rfc3339(plan.at),
        "confirmedAt": rfc3339(plan.confirmed_at),
        "pause": pause_wire(plan.pause),
        "items": [
            _row_wire(row)
            for row in plan.rows
            if (names is None or str(row.target) in names) and namespace in ("", row.target.namespace)
        ],
    }


def _row_wire(row: ScaleRow) -> ScaledWorkloadWire:
    target = row.target
    return write_row(ScaledWorkloadWire, row, namespace=target.namespace, kind=target.kind, name=target.name)
