"""The default order of changes."""

from __future__ import annotations

from collections.abc import Collection

from app.control.rollout.changes import ChangeKind, InstanceChange

FIRST = (ChangeKind.STOP, ChangeKind.RETUNE, ChangeKind.RESHAPE, ChangeKind.START)


def usually(todo: Collection[InstanceChange]) -> list[InstanceChange]:
    """Sorts changes: those that make room, then those that need a second copy for a while, then new ones; jobs last."""
    crowded = {place for change in todo if change.takes_room for place in change.places}
    return sorted(todo, key=lambda change: _usual(change, crowded))


def _usual(change: InstanceChange, crowded: set[tuple[str, int]]) -> tuple[object, ...]:
    """Returns the sort key: hand-overs that shrink first, the smallest new copy first.

    Of hand-overs that grow, the largest old copy goes first. Of copies that end, the one that carries least goes first:
    if the service can spare no more, the others stay.
    """
    before = change.before.memory_gib if change.before else 0.0
    after = change.instance.memory_gib
    by_room = (0, after) if change.growth <= 0 else (1, -before)
    return (
        bool(change.instance.job) and change.kind is not ChangeKind.STOP,
        FIRST.index(change.kind),
        crowded.isdisjoint(change.places),
        *(by_room if change.takes_room else (0, 0.0)),
        change.instance.rate_per_second if change.kind is ChangeKind.STOP else 0.0,
        change.id,
    )


def queues_of(change: InstanceChange) -> list[object]:
    """Returns what a change competes for: room on a GPU, and the capacity that a service can spare."""
    found: list[object] = []
    if change.takes_room:
        found += change.places
    if change.kind is not ChangeKind.START and change.instance.service:
        found.append(change.owner)
    return found
