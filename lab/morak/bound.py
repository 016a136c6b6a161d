"""An upper bound where splits are too many to enumerate: items share a GPU as if none slowed another."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from solvers.morak.power.knapsack import NOISE, Front
from solvers.morak.power.options import PowerTables

ROUNDS = 60


def best_split(items: PowerTables, most: int, price_per_w: float) -> float:
    """Returns the most a GPU is worth net of its watts: a knapsack over SM%, at each clock, without interference.

    Neighbours, shared memory and the cap only reduce the worth, so no real split is worth more."""
    value = items.best_alone() - price_per_w * items.power_w
    best = 0.0
    for clock in range(value.shape[1]):
        by_share = np.full(101, -np.inf)
        np.maximum.at(by_share, items.share, value[:, clock])
        reach = np.zeros(101)
        for _ in range(most):
            grown = np.full(101, -np.inf)
            for share in np.flatnonzero(by_share > 0):
                grown[share:] = np.maximum(grown[share:], reach[: 101 - share] + by_share[share])
            reach = np.maximum(reach, grown)
        best = max(best, float(reach.max()))
    return best * (1 + NOISE)


def bound(
    complete: Sequence[Front], open_ended: Sequence[tuple[PowerTables, int]], most: int, room_w: float | None
) -> float:
    """Minimises the dual over the price of a watt by golden section: it is convex, and a bound at every price."""

    def compute_dual(price: float) -> float:
        total = price * room_w if room_w is not None else 0.0
        total += sum(front.gpus * float((front.worth - price * front.watts).max()) for front in complete)
        return total + sum(gpus * best_split(items, most, price) for items, gpus in open_ended)

    if room_w is None:
        return compute_dual(0.0) * (1 + NOISE)
    dearest = max([_dearest(items) for items, _ in open_ended] + [float(np.max(front.worth)) for front in complete])
    return _least(compute_dual, dearest) * (1 + NOISE)


def _dearest(items: PowerTables) -> float:
    """Returns a price of a watt at which no item pays, except items that draw nothing."""
    gains: NDArray[np.float64] = items.best_alone() / np.maximum(items.power_w, 1e-3)
    return float(gains.max(initial=0.0))


def _least(function: Callable[[float], float], high: float) -> float:
    golden = (5**0.5 - 1) / 2
    low, least = 0.0, min(function(0.0), function(high))
    for _ in range(ROUNDS):
        lower, upper = high - golden * (high - low), low + golden * (high - low)
        at_lower, at_upper = function(lower), function(upper)
        least = min(least, at_lower, at_upper)
        low, high = (low, upper) if at_lower <= at_upper else (lower, high)
    return least
