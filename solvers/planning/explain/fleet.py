"""Summarises the fleet: its kinds of GPUs, how many there are, and how many of them are idle."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property

from solvers.planning.fleet.room_view import RoomView
from solvers.planning.fleet.rooms import FleetRooms
from solvers.planning.problem import Node, Problem


@dataclass(frozen=True, slots=True)
class NodeKind:
    """GPUs of one type and cap of watts on nodes that offer the same templates."""

    node: Node  # the cheapest of them
    gpus: int
    idle: int
    most_cpu_cores: float  # of any of its nodes, with nothing on it
    most_host_memory_gib: float


@dataclass(frozen=True)
class FleetCapacity:
    """The GPUs of a fleet by kind, and a view of one of each with nothing on it."""

    problem: Problem
    kinds: tuple[NodeKind, ...]
    view: RoomView

    @cached_property
    def gpu_types(self) -> frozenset[str]:
        return frozenset(kind.node.gpu_type for kind in self.kinds)


def fleet(rooms: FleetRooms) -> FleetCapacity:
    """Returns the kinds of a fleet's GPUs."""
    problem, idle = rooms.problem, (rooms.clients == 0).tolist()
    alike: dict[tuple[object, ...], list[int]] = defaultdict(list)
    for number, ((name, _), pool) in enumerate(zip(rooms.places, rooms.pool_numbers.tolist(), strict=True)):
        node = problem.nodes[name]
        alike[node.gpu_type, node.templates, node.cell, rooms.pools[pool].max_w].append(number)
    kinds = []
    for numbers in alike.values():
        nodes = {name: problem.nodes[name] for name in {rooms.places[number][0] for number in numbers}}
        at = min(numbers, key=lambda number: (nodes[rooms.places[number][0]].price_per_hour, rooms.places[number]))
        kind = NodeKind(
            nodes[rooms.places[at][0]],
            len(numbers),
            sum(idle[number] for number in numbers),
            max(node.cpu_cores for node in nodes.values()),
            max(node.host_memory_gib for node in nodes.values()),
        )
        kinds.append((kind, rooms.places[at]))
    kinds.sort(key=lambda entry: (entry[0].node.gpu_type, entry[1]))
    rows = [(kind.node, problem.type_at(place), [place]) for kind, place in kinds]
    return FleetCapacity(problem, tuple(kind for kind, _ in kinds), RoomView.idle(rows))
