"""A placement at once: the largest instances first, each on the fullest GPU that holds it."""

from __future__ import annotations

from solvers.hetsev.placement.problem import PlacementProblem
from solvers.hetsev.placement.rooms import Rooms


def solve(problem: PlacementProblem) -> dict[str, str]:
    """Best fit, decreasing; a GPU that is paid already before one that is not."""
    rooms = Rooms(problem)
    for instance in sorted(problem.pending, key=lambda one: (-one.memory_gib, one.name)):
        used = set(rooms.placement.values())
        fitting = [
            (0.0 if gpu.name in used else gpu.price_per_hour, rooms.free_gib[gpu.name], gpu.name, gpu)
            for gpu in rooms.candidates(instance)
        ]
        if fitting:
            rooms.put(instance, min(fitting, key=lambda choice: choice[:3])[3])
    return rooms.placement
