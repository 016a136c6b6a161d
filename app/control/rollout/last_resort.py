"""The last resort if capacity was lost and a rollout is stuck: the least important instance gives way."""

from __future__ import annotations

from collections.abc import Collection

from app.control.domain.events import Reason
from app.control.rollout.changes import ChangeKind, InstanceChange
from app.control.rollout.scene import Scene


def is_stuck(scene: Scene, made: Collection[InstanceChange]) -> bool:
    """Returns whether no change is under way that a waiting change may be waiting for.

    For a service without any serving copy, only changes that can block it count, and no canary does.
    """
    owners = scene.urgent
    silent = scene.observed.silent - scene.observed.lost
    drains = [gone for gone in scene.leaving.values() if scene.now - gone.since < scene.rules.leaving_seconds]
    if not owners:
        return not (made or scene.pending or drains or scene.canaries or silent)
    places = {place for change in scene.all if change.owner in owners for place in change.places}
    moving = [(change.node, change.instance) for change in made]
    moving += [(gone.node, gone.instance) for gone in drains]
    moving += [
        (node, instance)
        for node, wanted in scene.assigned.items()
        for instance in wanted.instances
        if instance.id in scene.pending
    ]
    for node, instance in moving:
        if instance.owner in owners or places.intersection([(node, gpu) for gpu in instance.all_gpus]):
            return False
    return not any(node in silent for node, _ in places)


def gives_way(scene: Scene, among: Collection[str] | None = None) -> InstanceChange | None:
    """Returns the change that takes room from a service, leaving it too little, for a more important one that lacks it.

    An order was found before the plan was recorded, so this happens only if capacity was lost since. The service that
    gives way has the lower priority or, at the same priority, the larger part of what it needs, even afterwards if the
    other still serves or if its own next copy is on its way. `among` are the instances that count, if not all.
    """
    todo = [change for change in scene.todo.values() if among is None or change.id in among]
    waiting = [change for change in todo if change.takes_room and change.instance.service]
    waiting = [change for change in waiting if scene.room_for(change)]
    short = [change for change in waiting if scene.ledger.share(change.owner) < 1]
    if scene.urgent:  # the others may be waiting for what moves
        short = [change for change in short if change.owner in scene.urgent]
    if not short:
        return None
    first = min(short, key=lambda change: (-change.instance.priority, scene.ledger.share(change.owner), change.id))
    wanted = {place for change in waiting for place in change.places}
    found = [
        change
        for change in todo
        if change.kind in (ChangeKind.STOP, ChangeKind.RESHAPE)
        and wanted.intersection(change.places)
        and _may(change, first, scene)
    ]
    return min(
        found,
        default=None,
        key=lambda change: (not set(first.places).intersection(change.places), change.instance.priority, change.id),
    )


def _may(change: InstanceChange, first: InstanceChange, scene: Scene) -> bool:
    obstacle = scene.obstacle(change)
    if obstacle is None or obstacle.reason != Reason.CAPACITY_AT_RISK or change.owner == first.owner:
        return False
    its = scene.ledger.share(first.owner)
    keeps_some = scene.ledger.serves(first.owner) or _awaits_another(change, scene)
    mine = scene.ledger.share(change.owner, _loss(change, scene) if keeps_some else 0.0)
    return (change.instance.priority, -mine) < (first.instance.priority, -its)


def _awaits_another(change: InstanceChange, scene: Scene) -> bool:
    """Returns whether another copy of the service is assigned and does not serve yet: the change waits for it."""
    copies = (instance for wanted in scene.assigned.values() for instance in wanted.instances)
    return any(
        copy.owner == change.owner and copy.id != change.id and scene.ledger.now.get(copy.id) is None for copy in copies
    )


def _loss(change: InstanceChange, scene: Scene) -> float:
    """Returns the rate that the service carries no more once the change is made."""
    carries = scene.ledger.now.get(change.id) or 0.0
    return carries if change.kind is ChangeKind.STOP else max(0.0, carries - change.instance.rate_per_second)
