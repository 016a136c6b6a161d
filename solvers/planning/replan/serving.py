"""Serves the rates of some services by small changes, as far as there is room."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from solvers.planning.fleet.grids import Floats
from solvers.planning.replan.cover import settle
from solvers.planning.replan.lines import assign
from solvers.planning.replan.running_board import RunningBoard

PASSES = 3  # beyond the first, over the rates that are left


def serve(d: RunningBoard, services: Sequence[int], prices: Floats, may_empty: bool = True) -> dict[int, float]:
    """Finds room for the rates of these services; returns what is unserved.

    Services that find room one after the other slow each other down, so what is left then looks for room again.
    """
    settle(d, services, prices, may_empty)
    unserved = assign(d, services)
    for _ in range(PASSES):
        lacking = [service for service in services if unserved[service]]
        before = sum(unserved.values())
        if not lacking:
            break
        settle(d, lacking, prices, may_empty)
        unserved = assign(d, services)
        if sum(unserved.values()) >= before:
            break
    return unserved


def lose_least(d: RunningBoard, serve_once: Callable[[bool], dict[int, float]]) -> dict[int, float]:
    """Serves from a board at rest, and again without emptying GPUs where room is short; keeps what leaves out less.

    `serve_once` takes whether it may empty GPUs, and returns what is unserved.
    """
    unserved = serve_once(True)
    lost = _price_lost(d, unserved)
    if not lost:
        return unserved
    d.restore()
    kept = serve_once(False)
    if _price_lost(d, kept) < lost * (1 - 1e-9):
        return kept
    d.restore()
    return serve_once(True)


def _price_lost(d: RunningBoard, unserved: Mapping[int, float]) -> float:
    return sum(float(d.t.unserved_price[service]) * rest for service, rest in unserved.items())
