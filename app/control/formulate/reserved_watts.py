"""Answers nodes that ask for another partition: their GPUs are planned with fewer watts than they may draw."""

from __future__ import annotations

from dataclasses import replace

from app.control.domain.snapshot import NodeStatus, Snapshot
from solvers.planning.machines import GpuType, Node

RESERVED_SHARE = 0.1  # of the watts above idle, by each answer to a node


def reserve_watts(snapshot: Snapshot) -> Snapshot:
    """Returns the snapshot in which GPUs of such nodes keep watts in reserve; the same snapshot if there are none."""
    asking = {
        name: replace(facts, keeps_reserve=True) for name, facts in snapshot.nodes.items() if facts.partition_requests
    }
    return replace(snapshot, nodes={**snapshot.nodes, **asking}) if asking else snapshot


def lower_caps(node: Node, kind: GpuType, facts: NodeStatus) -> Node:
    """Returns the node with lower caps for the GPUs that keep watts in reserve; what its agent has to keep stays."""
    if not facts.keeps_reserve:
        return node
    most_w = [node.type_at(index, kind).max_w for index in range(node.gpus[-1] + 1)]
    for index, answers in facts.partition_requests:
        if index < len(most_w):
            most_w[index] = kind.idle_w + (1 - RESERVED_SHARE) ** answers * (most_w[index] - kind.idle_w)
    return replace(node, caps_w=tuple(most_w))
