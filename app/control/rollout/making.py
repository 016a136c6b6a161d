"""What is made of all that is still to be done, in one go; and how devices are set meanwhile."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from agents.fits import Shortfall
from app.control.domain.desired import NodeDesired
from app.control.rollout.changes import NOTHING, InstanceChange
from app.control.rollout.clocks import settings
from app.control.rollout.queue import queues_of, usually
from app.control.rollout.rules import WaitingChange
from app.control.rollout.scene import Scene

NONE: Mapping[str, Shortfall | None] = {}


def in_turn(todo: Collection[InstanceChange], sequence: Sequence[str]) -> list[InstanceChange]:
    """What stands in the sequence first, in its order; the rest in the usual one."""
    rank = {id_: place for place, id_ in enumerate(sequence)}
    return sorted(usually(todo), key=lambda change: rank.get(change.id, len(rank)))


def make(
    scene: Scene,
    todo: Iterable[InstanceChange],
    sequence: Collection[str],
    known: Mapping[str, Shortfall | None] = NONE,
) -> tuple[list[InstanceChange], list[tuple[InstanceChange, Shortfall | None]]]:
    """Make what may be made; what waits, with what is in its way. `known`: what is as it was when it was asked last.

    Where the order matters, on a GPU and in a service each change waits for those before it: then whatever the pace of
    nodes, the first that is left can always be made next.
    """
    waits: set[object] = set()
    made: list[InstanceChange] = []
    waiting: list[tuple[InstanceChange, Shortfall | None]] = []
    for change in todo:
        queues = queues_of(change) if change.id in sequence else []
        obstacle = known.get(change.id) or scene.obstacle(change)
        if obstacle is None and waits.isdisjoint(queues):
            scene.make(change)
            made.append(change)
            continue
        waits.update(queues)
        waiting.append((change, obstacle))
    return made, waiting


def said(waiting: Iterable[tuple[InstanceChange, Shortfall | None]]) -> tuple[WaitingChange, ...]:
    """In words."""
    others = Shortfall("others_first", "what comes before it is not through yet")
    return tuple(
        WaitingChange(change.id, change.owner, lacks.reason, lacks.message)
        for change, found in waiting
        for lacks in [found or others]
    )


def as_set(scene: Scene, node: str, before: NodeDesired | None, unsettled: Collection[int]) -> NodeDesired:
    """The node with its devices and rules as they may be set now; on unsettled GPUs something is still to be done."""
    shall = scene.target.get(node)
    lines = before.instances if before else ()
    busy = {*unsettled, *(one.gpu for one in lines if one.id in scene.pending)}
    there = busy | {one.gpu for one in lines}
    gpus = settings(before, shall or NOTHING, there, there - busy)
    return replace(shall or before or NOTHING, instances=lines, gpus=gpus)
