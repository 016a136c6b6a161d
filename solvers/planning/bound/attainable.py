"""Rounds a bound up to the next possible cost: whole GPUs cost a sum of pool prices."""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd

import numpy as np

from solvers.planning.bound.fleet import BoundFleet

UNITS_A_PRICE = 1e4  # prices are multiples of 1 / this, or nothing is rounded
MOST_BITS = 2_000_000


@dataclass(frozen=True)
class Attainable:
    """The possible costs of plans that serve all that can be served; `sums` has bit k if GPUs can cost k units."""

    sums: int
    unit: float
    sure: float  # for services that nothing can serve
    otherwise: float  # at least this for leaving out any other

    def above(self, bound: float) -> float:
        """Returns the least possible cost of a valid plan at or above the bound."""
        if not self.sums:
            return bound
        least = int(np.ceil((bound - self.sure) / self.unit - 1e-6))
        rest = self.sums >> max(least, 0)
        dearer = max(bound, self.sure + self.otherwise * (1 - 1e-9))
        if not rest:
            return dearer
        units = max(least, 0) + (rest & -rest).bit_length() - 1
        return max(bound, min(dearer, (self.sure + units * self.unit) * (1 - 1e-12)))


def attainable(f: BoundFleet) -> Attainable:
    """Computes all sums of GPU prices; none if shares or energy are paid for, or prices are not round numbers."""
    t, policy = f.tables, f.tables.problem.policy
    can = np.zeros(len(f.need), dtype=np.bool_)
    for m in f.markets:
        can[m.service[m.alone > 0]] = True
        for c in m.classes:
            can[m.service[(c.at_lo > 0).any(axis=1)]] = True
    cost = t.unserved_price * np.maximum(f.need, 1.0)
    sure, otherwise = float(cost[~can].sum()) * (1 - 1e-9), float(t.unserved_price[can].min(initial=np.inf))
    units = [round(pool.price_per_hour * UNITS_A_PRICE) for pool in t.pools]
    exact = all(
        abs(n / UNITS_A_PRICE - p.price_per_hour) <= 1e-12 * p.price_per_hour
        for n, p in zip(units, t.pools, strict=True)
    )
    divisor = gcd(*units) if units else 0
    whole = policy.pricing == "gpu" and policy.energy_price_per_kwh == 0 and exact and divisor > 0
    total = sum(n // divisor * len(p.gpus) for n, p in zip(units, t.pools, strict=True)) if whole else MOST_BITS
    if total >= MOST_BITS:
        return Attainable(0, 1.0, sure, otherwise)
    sums = 1
    for n, pool in zip(units, t.pools, strict=True):
        left, step = len(pool.gpus), 1
        while left > 0:  # 1, 2, 4, ... at a time: every count up to all of them
            take = min(step, left)
            sums |= sums << (n // divisor * take)
            left, step = left - take, 2 * step
    return Attainable(sums, divisor / UNITS_A_PRICE, sure, otherwise)
