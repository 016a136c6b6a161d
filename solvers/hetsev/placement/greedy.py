"""Places by best fit: the largest instances first, each on the fullest GPU that has room for it."""

from __future__ import annotations

from solvers.hetsev.placement.problem import PlacementProblem
from solvers.hetsev.placement.rooms import Rooms


def solve(problem: PlacementProblem) -> dict[str, str]:
    """Best fit decreasing; GPUs that are already paid for come first."""
    rooms = Rooms(problem)
    for instance in sorted(problem.pending, key=lambda pending: (-pending.memory_gib, pending.name)):
        used = set(rooms.placement.values())
        fitting = [
            (0.0 if gpu.name in used else gpu.price_per_hour, rooms.free_gib[gpu.name], gpu.name, gpu)
            for gpu in rooms.candidates(instance)
        ]
        if fitting:
            rooms.put(instance, min(fitting, key=lambda choice: choice[:3])[3])
    return rooms.placement
