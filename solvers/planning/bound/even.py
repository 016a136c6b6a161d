"""Compiled: finds the price at which each offer's best GPU earns just its cost, at given prices of all others."""

from __future__ import annotations

from typing import Any

import numpy as np

from solvers.compiled import njit
from solvers.planning.bound.step_lines import H2
from solvers.planning.fleet.grids import SM, Floats, Ints
from solvers.planning.search.arrays import F1, F2, F8, I1


@njit((I1, F2, H2, F2, I1, I1, F2, F1, F8, F8, F8, F8, F2, F2, F2, F1), makes_arrays=True)
def break_even(
    profile: Ints, energy: Floats, rates: Any, earned: Floats, group: Ints, turns: Ints, pressure: Floats,
    memory: Floats, sigma: float, mu: float, sm_price: float, cost: float, values: Floats, before: Floats,
    behind: Floats, into: Floats,
) -> None:  # fmt: skip
    """Lowers into[offer] to where the best pattern with it is worth `cost`.

    The best of all other groups on the SMs that are left comes from knapsacks from both sides: `before` and `behind`
    have one row more than there are groups.
    """
    groups = turns.shape[0]
    for g in range(groups):
        for x in range(SM):
            values[g, x] = 0.0
    for row in range(earned.shape[0]):
        g = group[row]
        fixed = mu * memory[row]
        for x in range(SM):
            net = earned[row, x] - sigma * pressure[row, x] - fixed - sm_price * x
            net = net if earned[row, x] > 0.0 else 0.0
            values[g, x] = net if net > values[g, x] else values[g, x]
    for x in range(SM):
        before[0, x], behind[groups, x] = 0.0, 0.0
    for side in range(2):
        for step in range(groups):
            g = step if side == 0 else groups - 1 - step
            old, new = (before[g], before[g + 1]) if side == 0 else (behind[g + 1], behind[g])
            for x in range(SM):
                new[x] = old[x]
            for turn in range(turns[g]):
                source = old if turn == 0 else new.copy()
                top = 0.0
                for y in range(1, SM):
                    gain = values[g, y]
                    if gain <= top:
                        continue
                    top = gain
                    for x in range(SM - y):
                        found = source[x] + gain
                        new[x + y] = found if found > new[x + y] else new[x + y]
    rest = np.empty(SM)
    asked = np.empty((earned.shape[0], SM))
    for g in range(groups):
        for x in range(SM):
            rest[x] = before[g, x]
        for y in range(1, SM):
            gain = behind[g + 1, y]
            if gain <= behind[g + 1, y - 1]:
                continue
            for x in range(SM - y):
                found = before[g, x] + gain
                rest[x + y] = found if found > rest[x + y] else rest[x + y]
        for row in range(earned.shape[0]):
            if group[row] == g:
                fixed = mu * memory[row]
                for x in range(SM):
                    asked[row, x] = cost + sigma * pressure[row, x] + fixed + sm_price * x - rest[SM - 1 - x]
    for offer in range(rates.shape[0]):
        row = profile[offer]
        least = into[offer]
        for x in range(SM):
            rate = rates[offer, x]
            even = asked[row, x] / rate + energy[row, x] if rate > 1e-20 else np.inf
            least = even if even < least else least
        into[offer] = least
