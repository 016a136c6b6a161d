"""Compiled: computes the worth of a GPU of a class at given prices, never less than it truly is."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from solvers.compiled import njit
from solvers.planning.bound.boxes import CORNERS, ENDS, corner_of, felt_from, price_of
from solvers.planning.bound.step_lines import H2, earned_ends, spare_ends
from solvers.planning.fleet.grids import SM, Floats, Ints
from solvers.planning.fleet.kernels import C1, C2, C16
from solvers.planning.pressures import Pressures
from solvers.planning.search.arrays import F1, F2, F8, I1, I2, I8
from solvers.planning.step_prices import STEP_PRICES, StepPrices

F3 = numba.float64[:, :, ::1]
CUTS = 14


@njit((STEP_PRICES, F1, I1, I1, F2, C1, C2, C16, C16, H2, H2, H2, H2, F3), makes_arrays=True)
def envelopes(
    steps: StepPrices, prices: Floats, service: Ints, profile: Ints, energy: Floats, feels: Pressures,
    pressure: Pressures, lo: complex, hi: complex, at_lo: Any, at_hi: Any, spare_lo: Any, spare_hi: Any, into: Floats,
) -> None:  # fmt: skip
    """Writes the best that any offer of a profile earns at each corner of a class: into[corner, profile, SM%].

    `energy` is the cost of a request.
    """
    into[:] = 0.0
    ends = np.zeros(4)
    corners = into.shape[0]
    for offer in range(at_lo.shape[0]):
        who, row = service[offer], profile[offer]
        price, has_steps = prices[who], steps.start[who] < steps.start[who + 1]
        if price <= 0.0 and not has_steps:
            continue
        along = 0.0  # from the lowest to the highest corner, where there is most compute alone
        if corners == CORNERS:
            across = felt_from(feels[row], lo, hi)
            along = felt_from(feels[row], lo, corner_of(lo, hi, 2)) / across if across > 0.0 else 0.0
        for x in range(SM):
            if has_steps:
                earned_ends(
                    steps, who, price - energy[row, x], feels[row], pressure[row, x], lo, hi, at_lo[offer, x],
                    at_hi[offer, x], ends,
                )  # fmt: skip
                spare_ends(steps, who, spare_lo, spare_hi, offer, x, ends)
                first, last = ends[0], ends[1]
            else:
                first, last = (price - energy[row, x]) * at_lo[offer, x], (price - energy[row, x]) * at_hi[offer, x]
            into[0, row, x] = first if first > into[0, row, x] else into[0, row, x]
            into[1, row, x] = last if last > into[1, row, x] else into[1, row, x]
            if corners == CORNERS:
                into[2, row, x] = max(into[2, row, x], first + along * (last - first))
                into[3, row, x] = max(into[3, row, x], last + along * (first - last))


@njit((F2, I1, I1, C2, F1, C16, F8, F8, F2, F2, I1, I1, F1))
def knapsack(
    earned: Floats, group: Ints, turns: Ints, pressure: Pressures, memory: Floats, sigma: complex, mu: float,
    sm_price: float, values: Floats, best: Floats, got_profile: Ints, got_sm: Ints, about: Floats,
) -> float:  # fmt: skip
    """Finds the best residents at these prices of pressures, memory and SMs: a choice a group and turn, 100 SM% in all.

    about: (count, pressure on compute and on bandwidth, memory, SM%) of the residents chosen. `memory` is by profile.
    """
    groups = turns.shape[0]
    for g in range(groups):
        for x in range(SM):
            values[g, x] = 0.0
    for row in range(earned.shape[0]):
        g = group[row]
        fixed = mu * memory[row]
        for x in range(SM):
            net = earned[row, x] - price_of(sigma, pressure[row, x]) - fixed - sm_price * x
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
    count, pressed, held, used = 0, 0j, 0.0, 0.0
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
                        net = earned[row, y] - price_of(sigma, pressure[row, y]) - fixed - sm_price * y
                        if group[row] == g and earned[row, y] > 0.0 and net >= values[g, y]:
                            got_profile[count], got_sm[count] = row, y
                            count += 1
                            pressed += pressure[row, y]
                            held += memory[row]
                            used += y
                            break
                    x -= y
                    break
    about[0], about[1], about[2], about[3], about[4] = count, pressed.real, pressed.imag, held, used
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


@njit((F3, I1, I1, C2, F1, C16, C16, F8, F8, F8, F8, F8, I8, F1, F2, F2, I2, I2, F2), makes_arrays=True)
def worth(
    earned: Floats, group: Ints, turns: Ints, pressure: Pressures, memory: Floats, lo: complex, hi: complex,
    room: float, share_price: float, scale: float, target: float, tolerance: float, most: int, prices: Floats,
    values: Floats, best: Floats, got_profile: Ints, got_sm: Ints, about: Floats,
) -> int:  # fmt: skip
    """Lowers the worth of a class by its own prices of pressures and memory; returns how many patterns it looked at.

    For total pressures P within lo..hi a pattern earns its lines at P; with P = sum of pressures priced at sigma, what
    it earns is linear in P, so the most over all P is met at a corner. Memory is priced at mu; where shares are paid,
    share_price x max(SM share, memory share) is priced by the first of them, and by memory as far as mu goes.
    Any sigma and any mu >= 0 give an upper bound. prices: (sigma of compute, of bandwidth, mu, worth), the best found;
    the search starts there. It moves mu together with one price of pressure, and with each in turn where both count.
    about: per pattern (count, pressure on compute and on bandwidth, memory, SM%).
    """
    corners = earned.shape[0]
    cuts, planes_here = np.empty((CUTS, 4)), np.empty((CUTS, 3))
    spot = np.empty(2)
    sigma, mu = complex(prices[0], prices[1]), prices[2]
    result = np.inf
    planes, seen = 0, 0
    reach_sigma, reach_mu = 0.5 * scale, 0.5 * scale / room
    for turn in range(most):
        sm_price = max(share_price - mu * room, 0.0) / 100.0
        fixed = max(mu * room - share_price, 0.0)
        value = 0.0
        for corner in range(corners):
            total = corner_of(lo, hi, corner)
            found = knapsack(
                earned[corner], group, turns, pressure, memory, sigma, mu, sm_price, values, best, got_profile[seen],
                got_sm[seen], about[seen],
            )  # fmt: skip
            found += price_of(sigma, total) + fixed
            value = max(value, found)
            beyond = total - complex(about[seen, 1], about[seen, 2])
            used = 1.0 if mu * room >= share_price else about[seen, 4] / 100.0
            free = room * used - about[seen, 3]
            if planes == CUTS:  # the plane that is lowest here makes room
                worst, least = 0, np.inf
                for i in range(planes):
                    height = cuts[i, 0] + cuts[i, 1] * sigma.real + cuts[i, 2] * sigma.imag + cuts[i, 3] * mu
                    if height < least:
                        worst, least = i, height
                planes -= 1
                for i in range(4):
                    cuts[worst, i] = cuts[planes, i]
            cuts[planes, 0] = found - price_of(sigma, beyond) - free * mu
            cuts[planes, 1], cuts[planes, 2], cuts[planes, 3] = beyond.real, beyond.imag, free
            planes += 1
            seen += 1
        if value < result:
            result = value
            prices[0], prices[1], prices[2], prices[3] = sigma.real, sigma.imag, mu, value
        elif turn > 0:
            reach_sigma, reach_mu = 0.5 * reach_sigma, 0.5 * reach_mu
        if result <= target or turn == most - 1:
            break
        low, high = max(prices[2] - reach_mu, 0.0), prices[2] + reach_mu
        is_near = True
        for other in range(1 if corners == ENDS else 2):
            moved = 1 if (turn + other) % 2 and corners == CORNERS else 0
            for i in range(planes):
                planes_here[i, 0] = cuts[i, 0] + cuts[i, 2 - moved] * prices[1 - moved]
                planes_here[i, 1], planes_here[i, 2] = cuts[i, 1 + moved], cuts[i, 3]
            left, right = prices[moved] - reach_sigma, prices[moved] + reach_sigma
            if result - lowest(planes_here, planes, left, right, low, high, spot) > tolerance:
                sigma = complex(prices[0], spot[0]) if moved else complex(spot[0], prices[1])
                mu, is_near = spot[1], False
                break
        if is_near:
            break
    return seen
