"""Summarises the fleet: its kinds of GPUs, how many there are, and how many of them are empty."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property

from solvers.planning.explain.gpu_groups import GpuGroup, empty_gpu, gpu_group
from solvers.planning.problem import Node, Place, Problem


@dataclass(frozen=True, slots=True)
class NodeKind:
    """GPUs of one type on nodes that offer the same templates."""

    node: Node  # the cheapest of them
    gpus: int
    empty: int
    most_cpu_cores: float  # of any of its nodes, with nothing on it
    most_host_memory_gib: float


@dataclass(frozen=True)
class FleetCapacity:
    """The GPUs of a plan's fleet, and the empty ones among them, by kind."""

    problem: Problem
    kinds: tuple[NodeKind, ...]

    @cached_property
    def group(self) -> GpuGroup:
        """Returns an empty GPU of each kind."""
        return gpu_group(
            [empty_gpu(self.problem, kind.node, [(kind.node.name, kind.node.gpus[0])]) for kind in self.kinds]
        )

    @cached_property
    def gpu_types(self) -> frozenset[str]:
        return frozenset(kind.node.gpu_type for kind in self.kinds)


def fleet(problem: Problem, taken: Collection[Place]) -> FleetCapacity:
    """Returns the kinds of a problem's fleet, of which these GPUs are in use."""
    by_node = Counter(name for name, _ in taken)
    nodes: dict[tuple[object, ...], list[Node]] = {}
    for node in problem.nodes.values():
        nodes.setdefault((node.gpu_type, node.templates, node.cell), []).append(node)
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
