"""Answers nodes that ask for another partition: their GPUs are planned with fewer watts than they may draw."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from app.control.domain.snapshot import Snapshot
from solvers.planning.machines import GpuType, Node

RESERVED_SHARE = 0.1  # of the watts above idle


def reserve_watts(snapshot: Snapshot) -> Snapshot:
    """Returns the snapshot in which GPUs of such nodes keep watts in reserve; the same snapshot if there are none."""
    asking = {
        name: replace(facts, reserved_gpus=facts.repartition_gpus)
        for name, facts in snapshot.nodes.items()
        if facts.repartition_gpus
    }
    return replace(snapshot, nodes={**snapshot.nodes, **asking}) if asking else snapshot


def lower_caps(node: Node, kind: GpuType, gpus: Collection[int]) -> Node:
    """Returns the node with lower caps for these GPUs; what its agent has to keep stays."""
    if not gpus:
        return node
    most_w = [node.type_at(index, kind).max_w for index in range(node.gpus[-1] + 1)]
    for index in gpus:
        if index < len(most_w):
            most_w[index] -= RESERVED_SHARE * (most_w[index] - kind.idle_w)
    return replace(node, caps_w=tuple(most_w))
