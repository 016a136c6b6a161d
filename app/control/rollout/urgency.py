"""Who has nothing that serves while it waits for room: nobody else's trial keeps it waiting."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from app.control.domain.desired import Desired
from app.control.rollout.capacity import CapacityLedger
from app.control.rollout.changes import InstanceChange, components


def urgent(
    todo: Sequence[InstanceChange], ledger: CapacityLedger, told: Desired, pending: Iterable[str]
) -> frozenset[str]:
    """Services that wait without a copy that serves or comes up, and all whose changes can be in their way."""
    waiting = {change.owner for change in todo if change.takes_room and change.instance.service}
    starved = {owner for owner in waiting if not ledger.serves(owner)}
    if not starved:
        return frozenset()
    ids = set(pending)
    starved -= {instance.owner for wanted in told.values() for instance in wanted.instances if instance.id in ids}
    parts = [{change.owner for change in part} for part in components(todo)]
    return frozenset().union(*(owners for owners in parts if owners & starved))
