"""Decides from one view of the fleet which changes towards the target may be assigned now."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from app.control.domain.desired import Desired, FleetStatus, NodeDesired
from app.control.domain.events import Reason
from app.control.domain.readings import CopyTrial
from app.control.rollout import canary
from app.control.rollout.blocked import Blocked, Freed, find_blocked_parts, free
from app.control.rollout.changes import NOTHING, InstanceChange, changes
from app.control.rollout.check import StepFailure, check
from app.control.rollout.failing.falls import find_falls
from app.control.rollout.failing.starts import read_seen_starts
from app.control.rollout.failing.stopping import StoppedSteps, stop_failed
from app.control.rollout.last_resort import gives_way, is_stuck
from app.control.rollout.making import apply_settings, make, sort_changes, spell_waiting
from app.control.rollout.reporting import find_lagging, find_overdue
from app.control.rollout.rules import Advance, RolloutNotice, RolloutRules, RolloutState, WaitingChange
from app.control.rollout.scene import Scene
from app.control.rollout.swapped import release


def advance(
    target: Desired,
    assigned: Desired,
    observed: FleetStatus,
    state: RolloutState,
    rules: RolloutRules,
    now: datetime,
    trials: Mapping[str, CopyTrial],
) -> Advance:
    """Returns the next assignment. The same arguments give the same result; a later view continues.

    An instance is removed only if the others carry what the plan serves; nothing starts where it does not fit; a step
    that fails is taken back and stops its component. `trials` say how canaries answer.
    """
    seconds = now.timestamp()
    given, assigned = assigned, _drop_lost(assigned, target, observed)
    assigned, leaving = release(assigned, target, rules.swapping, state.leaving, seconds)
    state = replace(state, leaving=leaving)
    reported = _look_at_steps(assigned, observed, state, rules, seconds, trials)
    state = reported.state
    if reported.failures:
        found = stop_failed(target, assigned, state, reported.failures, rules, seconds)
        changed = _differing(found.assigned, given)
        stopped, notices = _stop(found, changed, reported.passed), (*reported.notices, *found.notices)
        return replace(stopped, overdue=reported.overdue, notices=notices)
    scene = Scene(assigned, target, state, observed, rules, changes(assigned, target), seconds)
    makes, waits = make(scene, sort_changes(scene.todo.values(), state.sequence), frozenset(state.sequence))
    made, waiting = tuple(change.id for change in makes), spell_waiting(waits)
    stuck_since = (state.stuck_since or seconds) if waiting and is_stuck(scene, makes) else 0.0
    blocked = find_blocked_parts(scene, makes, waiting, state)
    yielding = _yielding(scene, stuck_since, blocked)
    if yielding:
        scene.make(yielding)
        made = (*made, yielding.id)
    freed = None if yielding else _free_room(scene, waiting, state, blocked)
    after, is_set = _set_settings(scene, target, observed)
    changed = _differing(after, given)
    state_after = replace(
        state,
        pending=scene.pending,
        leaving=scene.leaving,
        canaries=scene.canaries,
        steps=state.steps + bool(changed),
        stuck_since=stuck_since,
        retried=tuple(id_ for id_ in state.retried if id_ in scene.pending or id_ in scene.todo),
        blocked=blocked.since,
        blocked_at=blocked.at,
        waited_seconds=blocked.waited_seconds,
    )
    if freed:
        owners = tuple(sorted({*state.freed, *freed.owners}))
        state_after = replace(state_after, sequence=freed.sequence, freed=owners)
    # A copy whose node cannot end it keeps its place, but no plan waits for it for ever.
    awaited = [gone for gone in scene.leaving.values() if seconds - gone.since < rules.leaving_seconds]
    done = not (changed or scene.todo or scene.pending or awaited or scene.canaries) and is_set
    return Advance(
        after, changed, state_after, done, target=freed.target if freed and freed.owners else None,
        freed=freed.message if freed else "", waiting=waiting, passed=reported.passed, made=made,
        overdue=reported.overdue, notices=reported.notices,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _ReportedSteps:
    """The state of a rollout by what nodes report now, and what has come of its steps."""

    state: RolloutState
    failures: tuple[StepFailure, ...]
    passed: tuple[str, ...]
    overdue: tuple[str, ...]
    notices: tuple[RolloutNotice, ...]


def _look_at_steps(
    assigned: Desired, observed: FleetStatus, state: RolloutState, rules: RolloutRules, now: float,
    trials: Mapping[str, CopyTrial],
) -> _ReportedSteps:  # fmt: skip
    lagging = find_lagging(state.lagging, observed, now)
    checked = check(assigned, state.pending, state.leaving, observed, rules, now, lagging, read_seen_starts(state))
    watched = canary.watch_canaries(state.canaries, assigned, checked.pending, observed, trials, rules, now)
    leaving, overdue = find_overdue(checked.leaving, observed, rules, now)
    state = replace(
        state,
        pending=checked.pending,
        leaving=leaving,
        canaries=watched.canaries,
        proven=tuple(sorted({*state.proven, *watched.passed})),
        lagging=lagging,
        longest_starts=checked.longest_starts,
    )
    failures = checked.failures
    if watched.failed:
        failures = (*failures, StepFailure(watched.failed, Reason.CANARY_FAILED, watched.message))
    fallen = find_falls(assigned, observed, state, rules, now)
    return _ReportedSteps(fallen.state, (*failures, *fallen.failures), watched.passed, overdue, fallen.notices)


def _yielding(scene: Scene, stuck_since: float, blocked: Blocked) -> InstanceChange | None:
    """Returns the change of the last resort, if the whole rollout or a component has waited for long enough."""
    if stuck_since and scene.now - stuck_since >= scene.rules.stuck_seconds and (found := gives_way(scene)):
        return found
    ids = blocked.longer_than(scene.rules.stuck_seconds)
    return gives_way(scene, ids) if ids else None


def _free_room(scene: Scene, waiting: Sequence[WaitingChange], state: RolloutState, blocked: Blocked) -> Freed | None:
    ids = blocked.longer_than(scene.rules.blocked_seconds)
    return free(ids, waiting, scene.assigned, scene.target, state, scene.rules) if ids else None


def _stop(found: StoppedSteps, changed: Desired, passed: tuple[str, ...]) -> Advance:
    first = found.stopped[0] if found.stopped else None
    return Advance(
        found.assigned,
        changed,
        found.state,
        stopped_reason=first.reason if first else "",
        message=first.message if first else "",
        target=found.target if first else None,
        is_over=found.is_over,
        passed=passed,
        retried=tuple(failure.message for failure in found.retried),
    )


def _differing(after: Desired, given: Desired) -> dict[str, NodeDesired]:
    return {node: wanted for node, wanted in after.items() if wanted != given.get(node)}


def _drop_lost(assigned: Desired, target: Desired, observed: FleetStatus) -> dict[str, NodeDesired]:
    """Returns the assignments without unwanted instances of lost nodes, which are not waited for."""
    found = dict(assigned)
    for node in observed.lost & assigned.keys():
        wanted = {instance.id for instance in target.get(node, NOTHING).instances}
        lines = tuple(instance for instance in assigned[node].instances if instance.id in wanted)
        if lines != assigned[node].instances:
            found[node] = replace(assigned[node], instances=lines)
    return found


def _set_settings(scene: Scene, target: Desired, observed: FleetStatus) -> tuple[dict[str, NodeDesired], bool]:
    """Returns every node with devices and rules as they may be set now, and if all are as the target wants them."""
    unsettled: dict[str, set[int]] = defaultdict(set)  # GPUs, by node
    for change in scene.todo.values():
        unsettled[change.node].update(change.instance.all_gpus)
    for gone in scene.leaving.values():
        unsettled[gone.node].update(gone.instance.all_gpus)
    found: dict[str, NodeDesired] = dict(scene.assigned)
    is_set = True
    for node in {*scene.assigned, *target}:
        before, shall = found.get(node), target.get(node)
        if before == shall or node in observed.silent - observed.lost:
            is_set = is_set and before == shall
            continue
        after = found[node] = apply_settings(scene, node, before, unsettled[node])
        is_set = is_set and {gpu.index: gpu for gpu in after.gpus} == {
            gpu.index: gpu for gpu in (shall.gpus if shall else ())
        }
    return found, is_set
