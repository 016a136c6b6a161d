"""Rounds a bound up to the next possible cost: whole GPUs cost a sum of pool prices, and whole nodes one of theirs."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from math import gcd

import numpy as np
from numpy.typing import NDArray

from solvers.planning.bound.fleet import BoundFleet
from solvers.planning.duals import SAFETY_SHARE, Attainable

UNITS_A_PRICE = 1e4  # prices are multiples of 1 / this, or nothing is rounded
MOST_BITS = 2_000_000


@dataclass(frozen=True)
class AttainableHere:
    """The possible costs of plans at the rates of a problem."""

    costs: Attainable
    sure: float  # for services that nothing can serve
    can_be_served: NDArray[np.bool_]

    def above(self, bound: float) -> float:
        """Returns the least possible cost of a valid plan at or above the bound."""
        return self.costs.above(bound, self.sure)


def attainable(f: BoundFleet) -> AttainableHere:
    """Computes all sums of prices of GPUs and nodes; none where shares or energy are paid, or prices are not round."""
    t = f.tables
    can = np.zeros(len(f.need), dtype=np.bool_)
    for m in f.markets:
        can[m.service[m.alone > 0]] = True
        for c in m.classes:
            can[m.service[(c.at_lo > 0).any(axis=1)]] = True
    cost = t.unserved_price * np.maximum(f.need, 1.0)
    sure, otherwise = float(cost[~can].sum()) * (1 - SAFETY_SHARE), float(t.unserved_price[can].min(initial=np.inf))
    sums, unit = _sums(f)
    return AttainableHere(Attainable(sums, unit, otherwise), sure, can)


def _sums(f: BoundFleet) -> tuple[int, float]:
    """Returns the sums that GPU prices can have, as bits, and their unit."""
    t, policy = f.tables, f.tables.problem.policy
    units = [round(pool.price_per_hour * UNITS_A_PRICE) for pool in t.pools]
    exact = all(
        abs(n / UNITS_A_PRICE - p.price_per_hour) <= 1e-12 * p.price_per_hour
        for n, p in zip(units, t.pools, strict=True)
    )
    divisor = gcd(*units) if units else 0
    whole = (
        policy.pricing == "gpu" and policy.energy_price_per_kwh == 0 and exact and divisor > 0 and bool(f.fixed.any())
    )
    total = sum(n // divisor * len(p.gpus) for n, p in zip(units, t.pools, strict=True)) if whole else MOST_BITS
    if total >= MOST_BITS:
        return 0, 1.0
    sums = 1
    for n, pool in zip(units, t.pools, strict=True):
        for size, count in Counter(pool.node_sizes or [1] * len(pool.gpus)).items():
            left, step = count, 1
            while left > 0:  # 1, 2, 4, ... at a time: every count up to all of them
                take = min(step, left)
                sums |= sums << (n // divisor * size * take)
                left, step = left - take, 2 * step
    return sums, divisor / UNITS_A_PRICE
