"""One look at the fleet: which of the changes towards the target may be told now."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import datetime

from app.control.domain.desired import Desired, FleetStatus, NodeDesired
from app.control.domain.events import Reason
from app.control.domain.readings import CopyTrial
from app.control.rollout import canary
from app.control.rollout.changes import NOTHING, changes
from app.control.rollout.check import check
from app.control.rollout.last_resort import gives_way, stands_still
from app.control.rollout.making import as_set, in_turn, make, said
from app.control.rollout.rules import Advance, RolloutRules, RolloutState
from app.control.rollout.scene import Scene
from app.control.rollout.taking_back import taken_back


def advance(
    target: Desired,
    told: Desired,
    observed: FleetStatus,
    state: RolloutState,
    rules: RolloutRules,
    now: datetime,
    trials: Mapping[str, CopyTrial] | None = None,
) -> Advance:
    """The next thing to tell. Asked again with the same, it says the same; asked again later, it goes on.

    An instance is left out only when what serves without it carries what the plan serves; nothing is started where it
    does not fit; a step that fails is taken back, and stops the rest. `trials` say how canaries answer.
    """
    seconds = now.timestamp()
    given, told = told, _without_lost(told, target, observed)
    checked = check(told, state.pending, state.leaving, observed, rules, seconds)
    watched = canary.watch_canaries(state.canaries, told, checked.pending, observed, trials or {}, rules, seconds)
    proven = tuple(sorted({*state.proven, *watched.passed}))
    state = replace(state, pending=checked.pending, leaving=checked.leaving, canaries=watched.canaries, proven=proven)
    if checked.failed or watched.failed:
        failed = [*checked.failed, watched.failed] if watched.failed else checked.failed
        after, state = taken_back(told, state, failed, rules, seconds)
        reason, message = checked.reason or Reason.CANARY_FAILED, checked.message or watched.message
        changed, owners = _differing(after, given), _owners(told, failed)
        return Advance(after, changed, state, False, reason, message, passed=watched.passed, failed=owners)
    scene = Scene(told, target, state, observed, rules, changes(told, target), seconds)
    makes, waits = make(scene, in_turn(scene.todo.values(), state.sequence), frozenset(state.sequence))
    made, waiting = tuple(change.id for change in makes), said(waits)
    stuck_since = 0.0
    if waiting and stands_still(scene, makes):
        stuck_since = state.stuck_since or seconds
        if seconds - stuck_since >= rules.stuck_seconds and (change := gives_way(scene)):
            scene.make(change)
            made = (*made, change.id)
    after, is_set = _with_settings(scene, target, observed)
    changed = _differing(after, given)
    left = replace(
        state,
        pending=scene.pending,
        leaving=scene.leaving,
        canaries=scene.canaries,
        steps=state.steps + bool(changed),
        stuck_since=stuck_since,
    )
    done = not (changed or scene.todo or scene.pending or scene.leaving or scene.canaries) and is_set
    return Advance(after, changed, left, done, waiting=waiting, passed=watched.passed, made=made)


def _owners(told: Desired, instances: Collection[str]) -> tuple[str, ...]:
    return tuple(
        sorted(
            {instance.owner for wanted in told.values() for instance in wanted.instances if instance.id in instances}
        )
    )


def _differing(after: Desired, given: Desired) -> dict[str, NodeDesired]:
    return {node: wanted for node, wanted in after.items() if wanted != given.get(node)}


def _without_lost(told: Desired, target: Desired, observed: FleetStatus) -> dict[str, NodeDesired]:
    """What is there of what was told: of a lost node what the target does not have is gone, and not waited for."""
    found = dict(told)
    for node in observed.lost & told.keys():
        wanted = {instance.id for instance in target.get(node, NOTHING).instances}
        lines = tuple(instance for instance in told[node].instances if instance.id in wanted)
        if lines != told[node].instances:
            found[node] = replace(told[node], instances=lines)
    return found


def _with_settings(scene: Scene, target: Desired, observed: FleetStatus) -> tuple[dict[str, NodeDesired], bool]:
    """Devices and rules of every node as they may be set now, and whether all are as they shall be."""
    unsettled: dict[str, set[int]] = defaultdict(set)  # GPUs, by node
    for change in scene.todo.values():
        unsettled[change.node].add(change.instance.gpu)
    for gone in scene.leaving.values():
        unsettled[gone.node].add(gone.instance.gpu)
    found: dict[str, NodeDesired] = dict(scene.told)
    is_set = True
    for node in {*scene.told, *target}:
        before, shall = found.get(node), target.get(node)
        if before == shall or node in observed.silent - observed.lost:
            is_set = is_set and before == shall
            continue
        after = found[node] = as_set(scene, node, before, unsettled[node])
        is_set = is_set and {gpu.index: gpu for gpu in after.gpus} == {
            gpu.index: gpu for gpu in (shall.gpus if shall else ())
        }
    return found, is_set
