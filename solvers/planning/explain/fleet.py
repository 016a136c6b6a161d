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
    """GPUs of one type and cap of watts on nodes that offer the same templates."""

    node: Node  # the cheapest of them
    gpu: int  # one of these GPUs there
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
        return gpu_group([empty_gpu(self.problem, kind.node, [(kind.node.name, kind.gpu)]) for kind in self.kinds])

    @cached_property
    def gpu_types(self) -> frozenset[str]:
        return frozenset(kind.node.gpu_type for kind in self.kinds)


def fleet(problem: Problem, taken: Collection[Place]) -> FleetCapacity:
    """Returns the kinds of a problem's fleet, of which these GPUs are in use."""
    by_node = Counter(name for name, _ in taken)
    used = frozenset(taken)
    parts: dict[tuple[object, ...], list[tuple[Node, tuple[int, ...]]]] = {}
    for node in problem.nodes.values():
        for max_w, gpus in node.by_watts(problem.gpu_types[node.gpu_type]):
            parts.setdefault((node.gpu_type, node.templates, node.cell, max_w), []).append((node, gpus))
    kinds = []
    for alike in parts.values():
        count = sum(len(gpus) for _, gpus in alike)
        in_use = sum(
            sum((node.name, index) in used for index in gpus) if node.caps_w else by_node[node.name]
            for node, gpus in alike
        )
        cheapest, gpus = min(alike, key=lambda part: (part[0].price_per_hour, part[0].name))
        kinds.append(
            NodeKind(
                cheapest,
                gpus[0],
                count,
                count - in_use,
                max(node.cpu_cores for node, _ in alike),
                max(node.host_memory_gib for node, _ in alike),
            )
        )
    return FleetCapacity(problem, tuple(sorted(kinds, key=lambda kind: (kind.node.gpu_type, kind.node.name, kind.gpu))))
