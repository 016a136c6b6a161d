"""Lists the changes that are under way, so that waiting changes can be tied to them."""

from __future__ import annotations

from collections.abc import Collection

from app.control.domain.desired import Desired
from app.control.rollout.changes import ChangeKind, InstanceChange
from app.control.rollout.rules import RolloutState


def list_under_way(assigned: Desired, state: RolloutState, ids: Collection[str]) -> list[InstanceChange]:
    """Returns the changes that were assigned and are not finished, and those of these instances."""
    busy = {*ids, *state.pending, *(canary.instance for canary in state.canaries.values())}
    found = [
        InstanceChange(ChangeKind.RESHAPE, node, instance, instance)
        for node, wanted in assigned.items()
        for instance in wanted.instances
        if instance.id in busy
    ]
    return found + [InstanceChange(ChangeKind.STOP, gone.node, gone.instance, None) for gone in state.leaving.values()]
