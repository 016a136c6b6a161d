"""Finds changes that wait with nothing under way that could free them, and frees them.

An order was found before the plan was recorded, so this happens only where the fleet changed since: a copy that was to
carry load died, or a newer plan took over and its changes wait for room that only changes after them would give.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from app.control.domain.desired import Desired
from app.control.domain.events import Reason
from app.control.rollout.changes import InstanceChange, components
from app.control.rollout.keeping import keep_instances, keep_owners
from app.control.rollout.ordering.finding import order
from app.control.rollout.reporting import is_awaited
from app.control.rollout.rules import LaggingNode, RolloutRules, RolloutState, WaitingChange
from app.control.rollout.scene import Scene
from app.control.rollout.ties import list_under_way

MOST_NAMED = 3  # changes, in a message
LONGEST_GAP_SECONDS = 15.0  # between two looks; after a longer one nothing counts as blocked before it


@dataclass(frozen=True, slots=True)
class Blocked:
    """The components of changes that wait for nothing that is under way."""

    parts: tuple[Sequence[InstanceChange], ...]
    since: Mapping[str, float]  # by instance
    waited_seconds: float  # in which any change of this rollout was blocked
    at: float = 0.0  # 0: nothing is blocked

    def longer_than(self, seconds: float) -> set[str]:
        """Returns the instances of the components that have been blocked for so long."""
        late = [part for part in self.parts if self.at - min(self.since[change.id] for change in part) >= seconds]
        return {change.id for part in late for change in part}


@dataclass(frozen=True, slots=True)
class Freed:
    """The target and the order with which blocked changes no longer wait, and a message about them."""

    target: Desired
    sequence: tuple[str, ...]
    owners: tuple[str, ...]  # of changes that are left out
    message: str


def find_blocked_parts(
    scene: Scene, made: Sequence[InstanceChange], waiting: Sequence[WaitingChange], state: RolloutState
) -> Blocked:
    """Returns the components that wait with nothing under way, and since when, which may be under an earlier plan."""
    parts = list(_find_blocked_parts(scene, made, waiting, state.lagging)) if waiting else []
    if not parts:
        return Blocked((), {}, state.waited_seconds)
    since_last = scene.now - state.blocked_at
    was_blocked = since_last <= LONGEST_GAP_SECONDS
    before = state.blocked if was_blocked else {}
    since = {change.id: before.get(change.id, scene.now) for part in parts for change in part}
    waited = state.waited_seconds + (since_last if was_blocked else 0.0)
    return Blocked(tuple(parts), since, waited, scene.now)


def _find_blocked_parts(
    scene: Scene,
    made: Sequence[InstanceChange],
    waiting: Sequence[WaitingChange],
    lagging: Mapping[str, LaggingNode],
) -> Iterator[Sequence[InstanceChange]]:
    leaving = {id_: gone for id_, gone in scene.leaving.items() if scene.now - gone.since < scene.rules.leaving_seconds}
    state = RolloutState((), scene.pending, leaving, scene.canaries)
    moving = [*made, *list_under_way(scene.assigned, state, _rising(scene))]
    busy = {id(change) for change in moving}
    on_trial = {change.instance for change in waiting if change.reason == Reason.CANARY_FIRST}
    for part in components([*scene.todo.values(), *moving]):
        if any(id(change) in busy or change.id in on_trial for change in part):
            continue
        if not any(is_awaited(change.node, lagging, scene.observed, scene.rules, scene.now) for change in part):
            yield part


def _rising(scene: Scene) -> set[str]:
    """Returns the instances that are about to serve, even though no step of the rollout waits for them.

    A job that runs is none: no gateway ever routes requests to it.
    """
    lines = [line for wanted in scene.assigned.values() for line in wanted.instances]
    statuses = [(line, scene.observed.instances.get(line.id)) for line in lines]
    return {
        line.id
        for line, status in statuses
        if status and (status.rising or (line.service and status.stage == "ready" and not status.routed))
    }


def free(
    ids: Collection[str], waiting: Sequence[WaitingChange], assigned: Desired, target: Desired, state: RolloutState,
    rules: RolloutRules,
) -> Freed:  # fmt: skip
    """Looks for another order from where the fleet is; what has none is left out, so that a new plan can be made."""
    found = order(assigned, target, rules)
    mine = [change for change in waiting if change.instance in ids]
    stuck = {held.service for held in found.stuck} & {change.owner for change in mine}
    goal: Desired = target
    if stuck:
        goal = keep_owners(target, assigned, stuck)
    elif found.sequence == state.sequence:  # it was tried
        stuck = {change.owner for change in mine}
        goal = keep_instances(target, assigned, ids)
    is_single = len(mine) == 1
    if stuck:
        what = f"{'it is' if is_single else 'they are'} left out until another plan"
    else:
        what = f"{'it gets' if is_single else 'they get'} another order"
    waits = [f"{change.instance} of {change.owner}: {change.message}" for change in mine]
    more = f" and {len(waits) - MOST_NAMED} more" if len(waits) > MOST_NAMED else ""
    changes = "1 change waits" if is_single else f"{len(waits)} changes wait"
    message = f"{changes} and nothing is under way; {what}: {'; '.join(waits[:MOST_NAMED])}{more}"
    return Freed(goal, found.sequence, tuple(sorted(stuck)), message)
