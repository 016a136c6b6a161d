"""Rolls out the plan in force step by step: assigns the changes that are possible now, and records the progress."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import msgspec

from agents.contract.assignments import AssignedInstance
from app.control.domain.decision import PlanState
from app.control.domain.desired import CopyCounts, Desired
from app.control.domain.events import NewEvent, Reason, event_of, reason_of
from app.control.domain.leading import FleetView, RolloutProgress
from app.control.domain.mode import AUTO, read_modes
from app.control.domain.policy import policy_spec
from app.control.domain.readings import CopyTrial
from app.control.domain.specs import down_seconds
from app.control.measure import metrics
from app.control.record.planner_store import PlannerStore
from app.control.rollout.advance import advance
from app.control.rollout.counts import CopyMarks, WaitingCopy, count_copies, find_waiting, list_unassigned
from app.control.rollout.declared_rules import read_rules
from app.control.rollout.life import begin, restart_clocks
from app.control.rollout.rules import Advance, RolloutState

Answering = Callable[[Mapping[str, AssignedInstance]], Mapping[str, CopyTrial]]

HELD = "the fleet is held since a rollback: gpuwright plan resume --fleet"
WATCHED = (PlanState.ROLLING, PlanState.DONE, PlanState.STOPPED, PlanState.ABORTED)


@dataclass(frozen=True, slots=True)
class RolloutStepResult:
    """The result of one step."""

    done: bool = True
    moving: frozenset[str] = frozenset()  # services that are being handed over
    assignments: Desired | None = None  # of the whole fleet by now, under a plan that is watched
    calls_for: Reason | None = None  # something fell, or was left out or blocked: a cycle is wanted before its time
    fallen: frozenset[str] = frozenset()  # services of which a copy was taken from its place


def take_rollout_step(
    store: PlannerStore, view: FleetView, proven: frozenset[str], answering: Answering, *, after_a_gap: bool = False
) -> RolloutStepResult:
    """Takes the next step from the assignments and reports of now towards the plan in force.

    `answering` says how canaries have answered: they pass by that, or by time if it says nothing. While no node reports
    it rests; after that, and after a gap in which nothing was observed, all waiting begins again.
    """
    plan = view.plan
    if plan is None or plan.state == PlanState.PAUSED:
        return RolloutStepResult()
    if plan.state not in WATCHED:
        return RolloutStepResult()
    if plan.state == PlanState.ABORTED and view.target != view.assigned:
        store.assign(plan, {}, RolloutProgress(PlanState.ABORTED, dict(plan.rollout), None, view.assigned))
        return RolloutStepResult()
    if view.status.is_outage:
        return RolloutStepResult(done=plan.state != PlanState.ROLLING)
    target = view.target
    rules = read_rules(view.declared)
    unproven = _find_unproven(view.assigned, target, rules.gpu_types) - proven
    rules = replace(rules, unproven=unproven, hurried=_find_hurried(view), by_hand=_find_by_hand(view))
    if "pending" in plan.rollout:
        before = msgspec.convert(plan.rollout, RolloutState)
    else:
        before = begin(msgspec.convert(plan.inherited, RolloutState), view.assigned, target, rules)
    before = restart_clocks(before, view.at.timestamp() if after_a_gap else view.status.heard_since)
    trials = answering(_list_trials(before, view.assigned)) if before.canaries else {}
    step = advance(target, view.assigned, view.status, before, rules, view.at, trials)
    state = _next_state(PlanState(plan.state), step)
    if step.changed or step.state != before or state != plan.state or "pending" not in plan.rollout:
        settled = RolloutProgress(
            state,
            _rollout_row(step, state),
            step.message or None,
            step.desired if step.is_over and state is PlanState.STOPPED else step.target,
        )
        if "pending" in plan.rollout and state == plan.state and _is_note(step, before):
            is_written = store.note_progress(plan, settled)
        else:
            is_written = store.assign(plan, step.changed, settled, _events(plan.generation, plan.state, state, step))
        if is_written:
            _count(step, before, state if plan.state == PlanState.ROLLING != state else None)
    moving = frozenset(waiting.owner for waiting in step.waiting) | _changing_owners(step)
    calls_for = Reason.ROLLOUT_BLOCKED if step.freed else Reason.ROLLOUT_STOPPED if step.stopped_reason else None
    if step.notices:
        calls_for = calls_for or step.notices[0].reason
    fallen = (notice.owner for notice in step.notices if notice.reason is Reason.INSTANCE_DOWN)
    is_done = step.done or state is not PlanState.ROLLING
    return RolloutStepResult(is_done, moving, step.desired, calls_for, frozenset(fallen))


@dataclass(slots=True)
class CopyLook:
    """Looks again and again at how many copies of services are planned, run and are routed to."""

    _waiting: Mapping[WaitingCopy, float] = field(default_factory=dict)  # since when

    def count(self, view: FleetView) -> Mapping[str, CopyCounts]:
        """Returns the counts of every declared service."""
        services = [item.full_name for item in view.declared if item.kind == "Service"]
        rollout, now = view.plan.rollout if view.plan else {}, view.at.timestamp()
        self._waiting = find_waiting(self._waiting, view.target, view.status, now)
        is_paused = view.plan is not None and view.plan.state == PlanState.PAUSED
        to_come = frozenset() if is_paused else list_unassigned(view.target, view.assigned)
        marks = CopyMarks(
            frozenset(rollout.get("pending", ())) | to_come,
            frozenset(rollout.get("suspects", ())),
            {copy: now - since for copy, since in self._waiting.items()},
        )
        copies = count_copies(services, view.target, view.status, marks, down_seconds(policy_spec(view.declared)))
        metrics.show_copies(copies)
        return copies


def _find_hurried(view: FleetView) -> frozenset[str]:
    """Returns the services and jobs with something on a node that is to be reclaimed."""
    leaving = (view.assigned[node] for node in view.status.reclaimed_at if node in view.assigned)
    return frozenset(instance.owner for wanted in leaving for instance in wanted.instances)


def _find_by_hand(view: FleetView) -> dict[str, str]:
    """Returns why a person moves a service, by service: nothing of it starts elsewhere by itself."""
    modes = read_modes(view.declared, is_held=False)
    found = {item.full_name: modes.find(item.full_name) for item in view.declared if item.kind == "Service"}
    held = dict.fromkeys(found, HELD) if view.is_held else {}
    return held | {name: f"its mode is {mode}" for name, mode in found.items() if mode != AUTO}


def _is_note(step: Advance, before: RolloutState) -> bool:
    """Returns whether nothing is assigned and nothing has happened: steps are only waited for."""
    is_news = step.changed or step.freed or step.stopped_reason or step.retried or step.passed or step.overdue
    return not (is_news or step.notices) and _drop_notes(step.state) == _drop_notes(before)


def _drop_notes(state: RolloutState) -> RolloutState:
    """Returns the state without what changes while steps are only waited for."""
    pending = {
        id_: replace(step, since=0.0, progress=0, progress_at=0.0, reported_at=0.0, silences=0, waits_for="")
        for id_, step in state.pending.items()
    }
    leaving = {id_: replace(gone, waits_for="") for id_, gone in state.leaving.items()}
    return replace(state, pending=pending, leaving=leaving, blocked={}, blocked_at=0.0, waited_seconds=0.0, lagging={})


def _count(step: Advance, before: RolloutState, ended: PlanState | None) -> None:
    metrics.ROLLOUT_WAITING_SECONDS.inc(max(0.0, step.state.waited_seconds - before.waited_seconds))
    if step.freed:
        metrics.ROLLOUTS_BLOCKED.inc()
    if ended:
        metrics.ROLLOUTS.labels(ended).inc()


def _list_trials(state: RolloutState, assigned: Desired) -> dict[str, AssignedInstance]:
    """Returns the canaries that serve."""
    watched = {canary.instance for canary in state.canaries.values() if canary.ready_since}
    if not watched:
        return {}
    return {
        instance.id: instance for wanted in assigned.values() for instance in wanted.instances if instance.id in watched
    }


def _rollout_row(step: Advance, after: PlanState) -> dict[str, object]:
    """Returns the progress for the store. A rollout that has stopped leaves nothing out if it is resumed."""
    found: dict[str, object] = msgspec.to_builtins(
        replace(step.state, left_out=()) if after is PlanState.STOPPED else step.state
    )
    return found


def _find_unproven(assigned: Desired, target: Desired, types: Mapping[str, str]) -> frozenset[str]:
    """Returns the shapes that run nowhere, of services that run in another one: those have something to lose."""
    running: dict[str, set[str]] = {}
    for node, service in _services(assigned):
        running.setdefault(service.owner, set()).add(service.profile_key(types.get(node, "")))
    known = set().union(*running.values()) if running else set()
    return frozenset(
        key
        for node, service in _services(target)
        if service.owner in running and (key := service.profile_key(types.get(node, ""))) not in known
    )


def _services(desired: Desired) -> list[tuple[str, AssignedInstance]]:
    return [(node, instance) for node, wanted in desired.items() for instance in wanted.instances if instance.service]


def _changing_owners(step: Advance) -> frozenset[str]:
    """Returns the services of which a copy is starting, or is down: another shape would not help them."""
    return frozenset(
        instance.owner
        for wanted in step.desired.values()
        for instance in wanted.instances
        if instance.service and (instance.id in step.state.pending or instance.id in step.state.down)
    )


def _next_state(before: PlanState, step: Advance) -> PlanState:
    if before is PlanState.DONE and step.stopped_reason:
        return PlanState.STOPPED  # a copy fell, and the plan lacks it
    if before is not PlanState.ROLLING:
        return before
    if step.is_over or (step.done and step.state.left_out):
        return PlanState.STOPPED
    return PlanState.DONE if step.done else before


def _events(generation: int, before: str, after: PlanState, step: Advance) -> list[NewEvent]:
    name = f"p{generation}"
    found = [
        event_of(Reason.CANARY_PASSED, f"{key} kept its SLO", kind="Plan", name=name, generation=generation, about=key)
        for key in step.passed
    ]
    found += [
        event_of(Reason.STEP_RETRIED, message, kind="Plan", name=name, generation=generation)
        for message in step.retried
    ]
    found += [
        event_of(Reason.STEP_TIMED_OUT, message, kind="Plan", name=name, generation=generation)
        for message in step.overdue
    ]
    if step.freed:
        found.append(event_of(Reason.ROLLOUT_BLOCKED, step.freed, kind="Plan", name=name, generation=generation))
    found += [
        event_of(notice.reason, notice.message, kind=notice.kind, name=notice.owner or notice.tenant)
        for notice in step.notices
    ]
    if step.stopped_reason == Reason.INSTANCE_DOWN and before != PlanState.ROLLING:
        return found
    if step.stopped_reason:
        reason = reason_of(step.stopped_reason) or Reason.ROLLOUT_STOPPED
        found.append(event_of(reason, step.message, kind="Plan", name=name, generation=generation))
    elif before != after:
        reason, message = Reason.ROLLOUT_DONE, ""
        if after is PlanState.STOPPED:
            reason = Reason.ROLLOUT_STOPPED
            message = f"all but the changes of {', '.join(step.state.left_out)} are rolled out"
        found.append(event_of(reason, message, kind="Plan", name=name, generation=generation))
    return found
