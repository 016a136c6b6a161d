"""The fleet in short: which kinds of GPUs there are, how many, and how many of them nothing runs on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property

from solvers.planning.explain.gpu_groups import GpuGroup, Place, empty, lot
from solvers.planning.problem import Node, Problem


@dataclass(frozen=True, slots=True)
class NodeKind:
    """GPUs of one type on nodes that offer the same templates."""

    node: Node  # one of them, the cheapest
    gpus: int
    empty: int
    most_cpu_cores: float  # of any of its nodes, with nothing on it
    most_host_memory_gib: float


@dataclass(frozen=True)
class FleetCapacity:
    """What a plan's fleet has, and has left, by kind."""

    problem: Problem
    kinds: tuple[NodeKind, ...]

    @cached_property
    def lot(self) -> GpuGroup:
        """One empty GPU of each kind."""
        return lot([empty(self.problem, kind.node, [(kind.node.name, kind.node.gpus[0])]) for kind in self.kinds])

    @cached_property
    def gpu_types(self) -> frozenset[str]:
        return frozenset(kind.node.gpu_type for kind in self.kinds)


def fleet(problem: Problem, taken: Collection[Place]) -> FleetCapacity:
    """The kinds of a problem's fleet, where something runs on these GPUs."""
    by_node = Counter(name for name, _ in taken)
    nodes: dict[tuple[object, ...], list[Node]] = {}
    for node in problem.nodes.values():
        nodes.setdefault((node.gpu_type, node.templates), []).append(node)
    kinds = []
    for alike in nodes.values():
        gpus = sum(node.gpu_count for node in alike)
        kinds.append(
            NodeKind(
                min(alike, key=lambda node: (node.price_per_hour, node.name)),
                gpus,
                gpus - sum(by_node[node.name] for node in alike),
                max(node.cpu_cores for node in alike),
                max(node.host_memory_gib for node in alike),
            )
        )
    return FleetCapacity(problem, tuple(sorted(kinds, key=lambda kind: (kind.node.gpu_type, kind.node.name))))
