"""Closes GPUs where copies of services failed to start, so that others take those copies."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import replace

from app.control.domain.snapshot import Snapshot, covers
from app.control.domain.specs import gpu_count
from solvers.planning.problem import Place


def close_failed_places(snapshot: Snapshot) -> Snapshot:
    """Returns the snapshot without the GPUs on which services rest; the same snapshot if there are none."""
    services = {item.full_name for item in snapshot.declared if item.kind == "Service"} if snapshot.resting else ()
    rests = [rest for owner, rest in snapshot.resting.items() if owner in services and not rest.is_everywhere]
    names = {rest.places[0][0] for rest in rests}
    return _close(snapshot, names, lambda place: any(rest.covers(place) for rest in rests))


def avoid_failed_places(snapshot: Snapshot, services: Collection[str]) -> Iterator[Snapshot]:
    """Yields the snapshot without the GPUs on which these services failed lately.

    Of a node on which several GPUs failed all are closed, too; in a second snapshot only those that failed.
    """
    failed = [snapshot.failed_places[service] for service in services]
    names = {node for places in failed for node, _ in places}
    wide = _close(snapshot, names, lambda place: any(covers(places, place) for places in failed))
    narrow = _close(snapshot, names, lambda place: any(place in places for places in failed))
    yield wide
    if narrow.nodes != wide.nodes:
        yield narrow


def plan_as_assigned(snapshot: Snapshot) -> Snapshot:
    """Returns the snapshot with what nodes are assigned as its plan in force."""
    return replace(snapshot, in_force=snapshot.assignments, assigned=None)


def _close(snapshot: Snapshot, names: Collection[str], is_closed: Callable[[Place], bool]) -> Snapshot:
    """Returns the snapshot with GPUs of these nodes closed to everything new, besides those that are closed already."""
    nodes = dict(snapshot.nodes)
    for item in snapshot.declared if names else ():
        if item.kind == "Node" and item.name in names and item.name in nodes:
            facts = nodes[item.name]
            gpus = range(gpu_count(item.spec))
            closed = tuple(gpu for gpu in gpus if gpu in facts.resting_gpus or is_closed((item.name, gpu)))
            nodes[item.name] = replace(facts, resting_gpus=closed)
    return snapshot if nodes == snapshot.nodes else replace(snapshot, nodes=nodes)
