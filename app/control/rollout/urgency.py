"""Finds services that wait for room without any serving copy; no other service's canary may delay them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from app.control.domain.desired import Desired
from app.control.rollout.capacity import CapacityLedger
from app.control.rollout.changes import InstanceChange, components


def urgent(
    todo: Sequence[InstanceChange], ledger: CapacityLedger, assigned: Desired, pending: Iterable[str]
) -> frozenset[str]:
    """Returns the services that wait without a copy that serves or starts, and all whose changes can block them."""
    waiting = {change.owner for change in todo if change.takes_room and change.instance.service}
    starved = {owner for owner in waiting if not ledger.serves(owner)}
    if not starved:
        return frozenset()
    ids = set(pending)
    starved -= {instance.owner for wanted in assigned.values() for instance in wanted.instances if instance.id in ids}
    parts = [{change.owner for change in part} for part in components(todo)]
    return frozenset().union(*(owners for owners in parts if owners & starved))
