"""Compiled: computes the worth of a GPU of a class at given prices, never less than it truly is."""

from __future__ import annotations

from typing import Any

import numpy as np

from solvers.compiled import njit
from solvers.planning.bound.step_lines import H2, earned_ends, spare_ends
from solvers.planning.fleet.grids import SM, Floats, Ints
from solvers.planning.search.arrays import F1, F2, F8, I1, I2, I8
from solvers.planning.step_prices import STEP_PRICES, StepPrices

CUTS = 14


@njit((STEP_PRICES, F1, I1, I1, F2, F2, F8, F8, H2, H2, H2, H2, F2, F2), makes_arrays=True)
def envelopes(
    steps: StepPrices, prices: Floats, service: Ints, profile: Ints, energy: Floats, pressure: Floats, lo: float,
    hi: float, at_lo: Any, at_hi: Any, spare_lo: Any, spare_hi: Any, into_lo: Floats, into_hi: Floats,
) -> None:  # fmt: skip
    """Writes the best that any offer of a profile earns at each end of a class: into[profile, SM%].

    `energy` is the cost of a request.
    """
    for row in range(into_lo.shape[0]):
        for x in range(SM):
            into_lo[row, x], into_hi[row, x] = 0.0, 0.0
    ends = np.zeros(4)
    for offer in range(at_lo.shape[0]):
        who, row = service[offer], profile[offer]
        price, has_steps = prices[who], steps.start[who] < steps.start[who + 1]
        if price <= 0.0 and not has_steps:
            continue
        for x in range(SM):
            if has_steps:
                earned_ends(
                    steps, who, price - energy[row, x], pressure[row, x], lo, hi, at_lo[offer, x], at_hi[offer, x],
                    ends,
                )  # fmt: skip
                spare_ends(steps, who, spare_lo, spare_hi, offer, x, ends)
                first, last = ends[0], ends[1]
            else:
                first, last = (price - energy[row, x]) * at_lo[offer, x], (price - energy[row, x]) * at_hi[offer, x]
            into_lo[row, x] = first if first > into_lo[row, x] else into_lo[row, x]
            into_hi[row, x] = last if last > into_hi[row, x] else into_hi[row, x]


@njit((F2, I1, I1, F2, F1, F8, F8, F8, F2, F2, I1, I1, F1))
def knapsack(
    earned: Floats, group: Ints, turns: Ints, pressure: Floats, memory: Floats, sigma: float, mu: float,
    sm_price: float, values: Floats, best: Floats, got_profile: Ints, got_sm: Ints, about: Floats,
) -> float:  # fmt: skip
    """Finds the best residents at these prices of pressure, memory and SMs: a choice a group and turn, 100 SM% in all.

    about: (count, pressure, memory, SM%) of the residents chosen. `memory` is by profile.
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
        best[0, x] = 0.0
    layer = 0
    for g in range(groups):
        for _ in range(turns[g]):
            before, after = best[layer], best[layer + 1]
            layer += 1
            for x in range(SM):
                after[x] = before[x]
            top = 0.0
            for y in range(1, SM):
                gain = values[g, y]
                if gain <= top:
                    continue  # fewer SMs earn as much
                top = gain
                for x in range(SM - y):
                    found = before[x] + gain
                    after[x + y] = found if found > after[x + y] else after[x + y]
    x = SM - 1
    value = float(best[layer, x])
    count, pressed, held, used = 0, 0.0, 0.0, 0.0
    for g in range(groups - 1, -1, -1):
        for _ in range(turns[g]):
            before, after = best[layer - 1], best[layer]
            layer -= 1
            if after[x] == before[x]:
                continue
            for y in range(1, x + 1):
                if values[g, y] > 0.0 and before[x - y] + values[g, y] == after[x]:
                    for row in range(earned.shape[0]):
                        fixed = mu * memory[row]
                        net = earned[row, y] - sigma * pressure[row, y] - fixed - sm_price * y
                        if group[row] == g and earned[row, y] > 0.0 and net >= values[g, y]:
                            got_profile[count], got_sm[count] = row, y
                            count += 1
                            pressed += pressure[row, y]
                            held += memory[row]
                            used += y
                            break
                    x -= y
                    break
    about[0], about[1], about[2], about[3] = count, pressed, held, used
    return value


@njit((F2, I8, F8, F8, F8, F8, F1), inner=True)
def lowest(cuts: Floats, count: int, left: float, right: float, low: float, high: float, into: Floats) -> float:
    """Finds where in a box the highest of planes value + a x + b y is lowest, by trying all corners of the planes."""
    best = np.inf
    x_mid, y_mid = 0.5 * (left + right), 0.5 * (low + high)
    pad_x, pad_y = 1e-9 * (right - left), 1e-9 * (high - low)
    total = count + 4
    for i in range(count):
        for j in range(i + 1, total):
            for k in range(j + 1, total):
                # three planes meet where their differences vanish; the last four are the sides of the box
                if j >= count:  # two sides and one plane: a corner of the box
                    if (j - count) // 2 == (k - count) // 2:
                        continue
                    x = left if j == count else right
                    y = low if k == count + 2 else high
                else:
                    a1, b1 = cuts[i, 1] - cuts[j, 1], cuts[i, 2] - cuts[j, 2]
                    c1 = cuts[j, 0] - cuts[i, 0]
                    if k >= count:
                        if k < count + 2:
                            x = left if k == count else right
                            if b1 == 0.0:
                                continue
                            y = (c1 - a1 * x) / b1
                        else:
                            y = low if k == count + 2 else high
                            if a1 == 0.0:
                                continue
                            x = (c1 - b1 * y) / a1
                    else:
                        a2, b2 = cuts[i, 1] - cuts[k, 1], cuts[i, 2] - cuts[k, 2]
                        c2 = cuts[k, 0] - cuts[i, 0]
                        det = a1 * b2 - a2 * b1
                        if det == 0.0:
                            continue
                        x = (c1 * b2 - c2 * b1) / det
                        y = (a1 * c2 - a2 * c1) / det
                if x < left - pad_x or x > right + pad_x or y < low - pad_y or y > high + pad_y:
                    continue
                most = -np.inf
                for m in range(count):
                    most = max(most, cuts[m, 0] + cuts[m, 1] * x + cuts[m, 2] * y)
                    if most >= best:
                        break
                if most < best:
                    best, x_mid, y_mid = most, x, y
    into[0], into[1] = min(max(x_mid, left), right), min(max(y_mid, low), high)
    return best


@njit((F2, F2, I1, I1, F2, F1, F8, F8, F8, F8, F8, F8, F8, I8, F1, F2, F2, I2, I2, F2), makes_arrays=True)
def worth(
    at_lo: Floats, at_hi: Floats, group: Ints, turns: Ints, pressure: Floats, memory: Floats, lo: float, hi: float,
    room: float, share_price: float, scale: float, target: float, tolerance: float, most: int, prices: Floats,
    values: Floats, best: Floats, got_profile: Ints, got_sm: Ints, about: Floats,
) -> int:  # fmt: skip
    """Lowers the worth of a class by its own prices of pressure and memory; returns how many patterns it looked at.

    For a total pressure P within lo..hi a pattern earns its lines at P; with P = sum of pressures priced at sigma, what
    it earns is linear in P, so the most over all P is met at an end. Memory is priced at mu; where shares are paid,
    share_price x max(SM share, memory share) is priced by the first of them, and by memory as far as mu goes.
    Any sigma and any mu >= 0 give an upper bound. prices: (sigma, mu, worth), the best found; the search starts there.
    about: per pattern (count, pressure, memory, SM%, end).
    """
    cuts = np.empty((CUTS, 3))
    spot = np.empty(2)
    sigma, mu = prices[0], prices[1]
    result = np.inf
    planes, seen = 0, 0
    reach_sigma, reach_mu = 0.5 * scale, 0.5 * scale / room
    for turn in range(most):
        sm_price = max(share_price - mu * room, 0.0) / 100.0
        fixed = max(mu * room - share_price, 0.0)
        value = 0.0
        for end in range(2):
            total, earned = (lo, at_lo) if end == 0 else (hi, at_hi)
            found = knapsack(
                earned, group, turns, pressure, memory, sigma, mu, sm_price, values, best, got_profile[seen],
                got_sm[seen], about[seen],
            )  # fmt: skip
            about[seen, 4] = end
            found += sigma * total + fixed
            value = max(value, found)
            a = total - about[seen, 1]
            used = 1.0 if mu * room >= share_price else about[seen, 3] / 100.0
            b = room * used - about[seen, 2]
            if planes == CUTS:  # the plane that is lowest here makes room
                worst = 0
                for i in range(1, planes):
                    if (
                        cuts[i, 0] + cuts[i, 1] * sigma + cuts[i, 2] * mu
                        < cuts[worst, 0] + cuts[worst, 1] * sigma + cuts[worst, 2] * mu
                    ):
                        worst = i
                planes -= 1
                for i in range(3):
                    cuts[worst, i] = cuts[planes, i]
            cuts[planes, 0], cuts[planes, 1], cuts[planes, 2] = found - a * sigma - b * mu, a, b
            planes += 1
            seen += 1
        if value < result:
            result = value
            prices[0], prices[1], prices[2] = sigma, mu, value
        elif turn > 0:
            reach_sigma, reach_mu = 0.5 * reach_sigma, 0.5 * reach_mu
        if result <= target or turn == most - 1:
            break
        left, right = prices[0] - reach_sigma, prices[0] + reach_sigma
        low, high = max(prices[1] - reach_mu, 0.0), prices[1] + reach_mu
        least = lowest(cuts, planes, left, right, low, high, spot)
        if result - least <= tolerance:
            break
        sigma, mu = spot[0], spot[1]
    return seen
