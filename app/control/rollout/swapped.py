"""Jobs whose processes wait in host memory: which go there as they leave their GPU, and which are kept no longer."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

import msgspec

from app.control.domain.desired import Desired, NodeDesired
from app.control.rollout.changes import NOTHING, ChangeKind, InstanceChange, put_instance
from app.control.rollout.rules import Leaving


def make_change(before: NodeDesired, change: InstanceChange, target: NodeDesired) -> NodeDesired:
    """Returns the node with the change made. A job that the target keeps in host memory goes there as it stops."""
    after = put_instance(before, change.id, change.after)
    if change.kind is ChangeKind.STOP and change.before and goes_to_host(change.id, target):
        return replace(after, swapped=tuple(sorted([*after.swapped, change.before], key=lambda line: line.id)))
    return after


def goes_to_host(id_: str, target: NodeDesired) -> bool:
    """Returns whether the target keeps the process of this instance in host memory."""
    return any(line.id == id_ for line in target.swapped)


def release(
    assigned: Desired, target: Desired, swapping: Collection[str], leaving: Mapping[str, Leaving], now: float
) -> tuple[dict[str, NodeDesired], dict[str, Leaving]]:
    """Returns the assignments without processes in host memory that are not kept, and what leaves with them.

    A job starts elsewhere only once its process is gone. One that is to run here again keeps its process until then.
    """
    found, going = dict(assigned), dict(leaving)
    for node, before in assigned.items():
        if not before.swapped:
            continue
        wanted = target.get(node, NOTHING)
        there = {line.id for line in (*wanted.swapped, *wanted.instances)}
        kept = tuple(line for line in before.swapped if line.id in there and line.owner in swapping)
        if kept == before.swapped:
            continue
        found[node] = replace(before, swapped=kept)
        for line in before.swapped:
            if line in kept:
                continue
            if known := going.get(line.id):  # still on its way there: it holds its room until it is gone
                going[line.id] = replace(known, swaps=False)
            else:
                without_room = msgspec.structs.replace(line, sm_percent=0.0, memory_gib=0.0)
                going[line.id] = Leaving(node, without_room, now)
    return found, going
