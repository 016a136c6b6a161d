"""When something was lost on the way and nothing moves any more: the least important gives way, one at a time."""

from __future__ import annotations

from app.control.events import Reason
from app.control.rollout.changes import Change, Kind
from app.control.rollout.scene import Scene


def gives_way(scene: Scene) -> Change | None:
    """What may be taken from a service although that leaves it too little: somebody dearer is short of its room.

    An order was found before the plan was recorded, so this is reached only when capacity has gone since. Whoever
    gives way has the lower priority, or at the same the larger part of what it needs.
    """
    waiting = [change for change in scene.todo.values() if change.takes_room and change.one.service]
    waiting = [change for change in waiting if scene.room_for(change)]
    short = [change for change in waiting if scene.ledger.share(change.owner) < 1]
    if not short:
        return None
    first = min(short, key=lambda change: (-change.one.priority, scene.ledger.share(change.owner), change.id))
    wanted = {change.place for change in waiting}
    found = [
        change
        for change in scene.todo.values()
        if change.kind in (Kind.STOP, Kind.RESHAPE) and change.place in wanted and _may(change, first, scene)
    ]
    return min(found, default=None, key=lambda change: (change.place != first.place, change.one.priority, change.id))


def _may(change: Change, first: Change, scene: Scene) -> bool:
    obstacle = scene.obstacle(change)
    if obstacle is None or obstacle.reason != Reason.CAPACITY_AT_RISK or change.owner == first.owner:
        return False
    mine, its = scene.ledger.share(change.owner), scene.ledger.share(first.owner)
    return (change.one.priority, -mine) < (first.one.priority, -its)
