"""Searches beyond the next step for an order of changes that block each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from agents.contract.assignments import AssignedInstance
from app.control.domain.desired import Desired, NodeDesired
from app.control.rollout.at_once import AT_ONCE
from app.control.rollout.changes import NOTHING, InstanceChange
from app.control.rollout.clocks import raised
from app.control.rollout.queue import usually
from app.control.rollout.rules import RolloutRules, RolloutState
from app.control.rollout.scene import Scene

MOST_CHANGES = 40  # that block each other; larger groups keep the usual order
MOST_LOOKS = 30_000


def search(part: Sequence[InstanceChange], start: Desired, goal: Desired, rules: RolloutRules) -> list[str] | None:
    """Returns an order in which each change finds room and leaves capacity; None if none was found.

    `start` and `goal` are those that `narrowed` gives for the part.
    """
    start = {node: _fast(wanted, goal.get(node)) for node, wanted in start.items()}
    return _deeper(start, goal, usually(part), rules, _Looks(), set())


def narrowed(desired: Desired, parts: Sequence[Sequence[InstanceChange]]) -> list[dict[str, NodeDesired]]:
    """Returns, for each part, the assignments that matter to it: on its GPUs, and of its services."""
    of: dict[object, int] = {}
    for number, part in enumerate(parts):
        for change in part:
            of[change.place] = of[change.owner] = number
    lines: list[dict[str, list[AssignedInstance]]] = [{} for _ in parts]
    for node, wanted in desired.items():
        for instance in wanted.instances:
            for mine in {of.get((node, instance.gpu), -1), of.get(instance.owner, -1)} - {-1}:
                lines[mine].setdefault(node, []).append(instance)
    for number, part in enumerate(parts):
        for change in part:
            lines[number].setdefault(change.node, [])
    return [
        {node: replace(desired.get(node, NOTHING), instances=tuple(found)) for node, found in those.items()}
        for those in lines
    ]


class _Looks:
    """The number of changes that the search may still check."""

    remaining = MOST_LOOKS


def _deeper(
    here: Desired,
    goal: Desired,
    todo: list[InstanceChange],
    rules: RolloutRules,
    looks: _Looks,
    tried: set[frozenset[str]],
) -> list[str] | None:
    if not todo:
        return []
    mark = frozenset(change.id for change in todo)
    if mark in tried:
        return None
    tried.add(mark)
    scene = Scene(here, goal, RolloutState(), AT_ONCE, rules, todo, 0.0)
    for change in todo:
        looks.remaining -= 1
        if looks.remaining < 0:
            return None
        if scene.obstacle(change) is not None:
            continue
        scene.make(change)
        rest = [other for other in todo if other.id != change.id]
        found = _deeper(scene.assigned, goal, rest, rules, looks, tried)
        if found is not None:
            return [change.id, *found]
        scene = Scene(here, goal, RolloutState(), AT_ONCE, rules, todo, 0.0)  # as it was
    return None


def _fast(assigned: NodeDesired | None, target: NodeDesired | None) -> NodeDesired:
    """Returns the node with its clocks raised: that comes first, so it blocks nothing."""
    was = {gpu.index: gpu for gpu in (assigned or NOTHING).gpus}
    shall = {gpu.index: gpu for gpu in (target or NOTHING).gpus}
    gpus = tuple(raised(gpu, shall.get(index, gpu)) for index, gpu in was.items())
    return replace(assigned or NOTHING, gpus=gpus)
