"""Makes the changes that are possible now, and sets devices for the time until the others are possible."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from agents.contract.fits import Shortfall
from app.control.domain.desired import NodeDesired
from app.control.rollout.changes import NOTHING, InstanceChange
from app.control.rollout.clocks import settings
from app.control.rollout.ordering.queue import queues_of, usually
from app.control.rollout.rules import WaitingChange
from app.control.rollout.scene import Scene

NONE: Mapping[str, Shortfall | None] = {}


def sort_changes(todo: Collection[InstanceChange], sequence: Sequence[str]) -> list[InstanceChange]:
    """Sorts changes: those in the sequence first, in its order; the others as usual."""
    rank = {id_: place for place, id_ in enumerate(sequence)}
    return sorted(usually(todo), key=lambda change: rank.get(change.id, len(rank)))


def make(
    scene: Scene,
    todo: Iterable[InstanceChange],
    sequence: Collection[str],
    known: Mapping[str, Shortfall | None] = NONE,
) -> tuple[list[InstanceChange], list[tuple[InstanceChange, Shortfall | None]]]:
    """Makes the possible changes; returns them, and the others with their obstacles. `known` obstacles still hold.

    If the order matters, each change waits for those before it on its GPU and in its service: then, however fast nodes
    are, the first change left can always be made next.
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


def spell_waiting(waiting: Iterable[tuple[InstanceChange, Shortfall | None]]) -> tuple[WaitingChange, ...]:
    """Describes what each change waits for."""
    others = Shortfall("others_first", "changes before it are not finished yet")
    return tuple(
        WaitingChange(change.id, change.owner, lacks.reason, lacks.message)
        for change, found in waiting
        for lacks in [found or others]
    )


def apply_settings(scene: Scene, node: str, before: NodeDesired | None, unsettled: Collection[int]) -> NodeDesired:
    """Returns the node with devices and rules as they may be set now; on unsettled GPUs changes are still to come."""
    shall = scene.target.get(node)
    lines = before.instances if before else ()
    busy = {*unsettled, *(gpu for line in lines if line.id in scene.pending for gpu in line.all_gpus)}
    there = busy | {gpu for line in lines for gpu in line.all_gpus}
    gpus = settings(before, shall or NOTHING, there, there - busy)
    return replace(shall or before or NOTHING, instances=lines, gpus=gpus, swapped=before.swapped if before else ())
