"""Serves the rates of some services by small changes, as far as there is room."""

from __future__ import annotations

from collections.abc import Sequence

from solvers.planning.fleet.grids import Floats
from solvers.planning.replan.cover import settle
from solvers.planning.replan.lines import assign
from solvers.planning.replan.running_board import RunningBoard

PASSES = 3  # beyond the first, over the rates that are left


def serve(d: RunningBoard, services: Sequence[int], prices: Floats) -> dict[int, float]:
    """Finds room for the rates of these services; returns what is unserved.

    Services that find room one after the other slow each other down, so what is left then looks for room again.
    """
    settle(d, services, prices)
    unserved = assign(d, services)
    for _ in range(PASSES):
        lacking = [service for service in services if unserved[service]]
        before = sum(unserved.values())
        if not lacking:
            break
        settle(d, lacking, prices)
        unserved = assign(d, services)
        if sum(unserved.values()) >= before:
            break
    return unserved
