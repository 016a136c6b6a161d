"""Closes the GPUs where copies failed to start, for as long as their services rest: others may take those copies."""

from __future__ import annotations

from dataclasses import replace

from app.control.domain.snapshot import Snapshot
from app.control.domain.specs import gpu_count


def close_failed_places(snapshot: Snapshot) -> Snapshot:
    """Returns the snapshot with these GPUs closed to everything new; the same snapshot if there are none."""
    services = {item.full_name for item in snapshot.declared if item.kind == "Service"} if snapshot.resting else ()
    rests = [rest for owner, rest in snapshot.resting.items() if owner in services and not rest.is_everywhere]
    names = {rest.places[0][0] for rest in rests}
    nodes = dict(snapshot.nodes)
    for item in snapshot.declared if names else ():
        if item.kind == "Node" and item.name in names & nodes.keys():
            gpus = range(gpu_count(item.spec))
            closed = tuple(gpu for gpu in gpus if any(rest.covers((item.name, gpu)) for rest in rests))
            nodes[item.name] = replace(nodes[item.name], resting_gpus=closed)
    return snapshot if nodes == snapshot.nodes else replace(snapshot, nodes=nodes)
