"""Compiled: finds the best residents of a GPU exactly, by branch and bound on a class of total pressures."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from solvers.compiled import njit
from solvers.planning.bound.boxes import CORNERS, ENDS, corner_of, price_of
from solvers.planning.bound.lines import rate_at, spare_at
from solvers.planning.fleet.grids import SM, Floats, Ints
from solvers.planning.fleet.kernels import C2, C16, is_within, slow_by, subtract_own
from solvers.planning.pressures import Pressures
from solvers.planning.search.arrays import F1, F2, F8, I1, I2, I8, MOST_RESIDENTS, WORLD, TableArrays
from solvers.planning.step_prices import STEP_PRICES, StepPrices, rounded

F3 = numba.float64[:, :, ::1]
LEAF_STEPS = 50  # of work, to compute the true rates of a pattern
PRICES = 5  # of pressures and memory: the least of what they promise for the rest of a GPU counts
ROOM = 1.0 + 1e-9  # of memory, for sums of floats
NOTHING = 1e-9  # of pressure


@njit((I1, I1, C2, F1, C16, F8, F8, F1), inner=True)
def pay(
    row_of: Ints, x_of: Ints, pressure: Pressures, memory: Floats, sigma: complex, mu: float, sm_price: float,
    into: Floats,
) -> None:  # fmt: skip
    """Writes what the pressures, the memory and the SMs of each item cost at these prices."""
    for i in range(into.shape[0]):
        row, x = row_of[i], x_of[i]
        into[i] = price_of(sigma, pressure[row, x]) + mu * memory[row] + sm_price * x


@njit((F2, I1, I1, I1, I1, F1, F1, F2), inner=True)
def promise(
    earned: Floats, layers: Ints, start: Ints, row_of: Ints, x_of: Ints, paid: Floats, values: Floats, best: Floats
) -> None:
    """Writes the most that residents of the first so many layers earn within so many SM%, less what they pay."""
    for x in range(SM):
        best[0, x] = 0.0
    for layer in range(layers.shape[0]):
        for x in range(SM):
            values[x] = 0.0
        for i in range(start[layers[layer]], start[layers[layer] + 1]):
            row, x = row_of[i], x_of[i]
            net = earned[row, x] - paid[i]
            values[x] = net if net > values[x] else values[x]
        before, after = best[layer], best[layer + 1]
        for x in range(SM):
            after[x] = before[x]
        top = 0.0
        for y in range(1, SM):
            gain = values[y]
            if gain <= top:
                continue
            top = gain
            for x in range(SM - y):
                found = before[x] + gain
                after[x + y] = found if found > after[x + y] else after[x + y]


@njit(F8(F1, C16, C16, C16), inner=True)
def earned_within(at_corners: Floats, lo: complex, hi: complex, total: complex) -> Any:
    """Returns no less than what is earned within a class by residents that earn so much at its corners."""
    wide, high = hi.real - lo.real, hi.imag - lo.imag
    part = min(max((total.real - lo.real) / wide, 0.0), 1.0) if wide > 0.0 else 0.0
    if at_corners.shape[0] < CORNERS:
        return at_corners[0] * (1.0 - part) + at_corners[1] * part
    other = min(max((total.imag - lo.imag) / high, 0.0), 1.0) if high > 0.0 else 0.0
    low = at_corners[0] * (1.0 - part) + at_corners[2] * part
    return low * (1.0 - other) + (at_corners[3] * (1.0 - part) + at_corners[1] * part) * other


@njit((WORLD, F2, F1, F1, STEP_PRICES, F1, I8, I1, I1, I1, F2, C2, C16, I8, I8, F1), inner=True)
def find_best_offer(
    w: TableArrays, full_ratio: Floats, need: Floats, spare_need: Floats, steps: StepPrices, prices: Floats, first: int,
    start: Ints, member: Ints, service: Ints, energy: Floats, pressure: Pressures, total: complex, row: int, x: int,
    into: Floats,
) -> int:  # fmt: skip
    """Returns the offer of a profile that earns most at these total pressures, -1 if none can be there.

    into: (what it earns, its rate, what it could carry when a node is lost).
    """
    best = -1
    into[0], into[1], into[2] = 0.0, 0.0, 0.0
    for at in range(start[row], start[row + 1]):
        offer = member[at]
        who, profile = service[offer], w.offer_profile[first + offer]
        if need[who] <= 0.0:
            continue
        slow = 1.0 + slow_by(w.sensitivity[profile], subtract_own(total, pressure[row, x]))
        rate = min(rate_at(w, full_ratio, who, profile, x, slow * w.margin), need[who])
        if rate <= 0.0:
            continue
        gain, could = max(prices[who] - energy[row, x], 0.0) * rate, 0.0
        for step in range(steps.start[who], steps.start[who + 1]):
            gain += steps.price[step] * rounded(rate, steps.length[step], steps.rise[step])
        if spare_need[who] > 0.0:
            could = min(spare_at(w, who, profile, x, slow), need[who])
            gain += steps.spare[who] * could
        if gain > into[0]:
            best, into[0], into[1], into[2] = offer, gain, rate, could
    return best


@njit(
    (
        WORLD, F2, F1, F1, STEP_PRICES, F1, I8, I1, I1, I1, F2, C2, F8, F3, I1, I1, I1, C2, F1, C16, C16, F8, F8, F8,
        F1, F8, I8, F3, I2, I2, F2, I1,
    ), makes_arrays=True
)  # fmt: skip
def find_dearest(
    w: TableArrays, full_ratio: Floats, need: Floats, spare_need: Floats, steps: StepPrices, prices: Floats, first: int,
    offer_start: Ints, offer_member: Ints, service: Ints, energy: Floats, own: Pressures, idle: float,
    earned: Floats, start: Ints, member: Ints, turns: Ints, pressure: Pressures, memory: Floats, lo: complex,
    hi: complex, room: float, share_price: float, scale: float, class_prices: Floats, target: float, most: int,
    best: Floats, got_profile: Ints, got_sm: Ints, about: Floats, counts: Ints,
) -> float:  # fmt: skip
    """Returns the most that a GPU of this class earns, or `target` if that is more; after `most` steps, a bound of it.

    Lines tell which branches may reach the target; whole patterns earn their true rates. It takes residents group by
    group, and gives a branch up as soon as some prices of pressures and memory show that the rest cannot reach it.
    counts: (patterns found above the target: the last ones are written; steps).
    """
    counts[0], counts[1] = 0, 0
    groups, corners = turns.shape[0], earned.shape[0]
    first_item = np.zeros(groups + 1, np.int64)
    row_of, x_of = np.empty(earned[0].size, np.int64), np.empty(earned[0].size, np.int64)
    items = 0
    for g in range(groups):
        for i in range(start[g], start[g + 1]):
            for x in range(1, SM):
                if earned[0, member[i], x] > 0.0 or earned[1, member[i], x] > 0.0:
                    row_of[items], x_of[items] = member[i], x
                    items += 1
        first_item[g + 1] = items
    layers = np.empty(turns.sum(), np.int64)
    values, tops = np.zeros(SM), np.zeros(groups)
    sigma, mu, sm_price = np.empty(PRICES, np.complex128), np.empty(PRICES), np.empty(PRICES)
    beyond = np.empty(corners * PRICES)
    step = max(0.5 * abs(class_prices[0]), 0.1 * scale) + max(0.5 * abs(class_prices[1]), 0.1 * scale) * 1j
    for k in range(PRICES):
        by = 0.0 if k == 0 or k == 3 else 1.0 if k == 1 else -1.0 if k == 2 else 3.0
        sigma[k] = complex(class_prices[0], class_prices[1]) + by * step
        mu[k] = class_prices[2] if k < 3 else 0.0
        sm_price[k] = max(share_price - mu[k] * room, 0.0) / 100.0
        for corner in range(corners):
            total = corner_of(lo, hi, corner)
            beyond[corners * k + corner] = price_of(sigma[k], total) + max(mu[k] * room - share_price, 0.0)
    paid = np.empty((1, items))
    for turn in range(2):  # first with all items at the class's prices, then with those that they leave
        for k in range(PRICES if turn else 1):
            pay(row_of, x_of, pressure, memory, sigma[k], mu[k], sm_price[k], paid[k])
        count = 0
        for g in np.argsort(tops):
            if first_item[g + 1] > first_item[g]:
                for _ in range(turns[g]):
                    layers[count] = g
                    count += 1
        for k in range(PRICES if turn else 1):
            for corner in range(corners):
                promise(
                    earned[corner], layers[:count], first_item, row_of, x_of, paid[k], values,
                    best[corners * k + corner],
                )  # fmt: skip
        if turn:
            break
        items = 0
        for g in range(groups):
            begin, first_item[g] = first_item[g], items
            for i in range(begin, first_item[g + 1]):
                row, x = row_of[i], x_of[i]
                for corner in range(corners):
                    if beyond[corner] + earned[corner, row, x] - paid[0, i] + best[corner, count, SM - 1 - x] > target:
                        row_of[items], x_of[items] = row, x
                        items += 1
                        tops[g] = max(tops[g], earned[0, row, x], earned[1, row, x])
                        break
        first_item[groups] = items
        paid = np.empty((PRICES, items))
    if count == 0:
        return target
    most_pressed = hi + complex(NOTHING, NOTHING)
    for row in range(pressure.shape[0]):
        if pressure[row].real.min() < 0.0:  # more residents may press less
            most_pressed = complex(np.inf, np.inf)
    gains, presses, holds = np.empty((items, corners)), np.empty(items, np.complex128), np.empty(items)
    for i in range(items):
        presses[i], holds[i] = pressure[row_of[i], x_of[i]], memory[row_of[i]]
        for corner in range(corners):
            gains[i, corner] = earned[corner, row_of[i], x_of[i]]
    deep = MOST_RESIDENTS + 2  # one more than is tried
    left, pressed, held = np.zeros(deep, np.int64), np.zeros(deep, np.complex128), np.zeros(deep)
    value = np.zeros((deep, corners))
    at, item = np.zeros(deep, np.int64), np.zeros(deep, np.int64)
    rows, sms = np.zeros(deep, np.int64), np.zeros(deep, np.int64)
    adjusted = np.zeros((deep, corners * PRICES))
    adjusted[0] = beyond
    depth, work, found = 0, 0, 0
    into = np.empty(3)
    left[0], at[0], item[0] = SM - 1, count - 1, first_item[layers[count - 1]]
    while depth >= 0:
        layer = at[depth]
        if layer < 0:
            depth -= 1
            continue
        g = layers[layer]
        if item[depth] == first_item[g]:
            is_open = True
            for k in range(PRICES):
                low = corners * k  # the corner of the lowest pressures
                is_open = (
                    adjusted[depth, low] + best[low, layer + 1, left[depth]] > target
                    or adjusted[depth, low + 1] + best[low + 1, layer + 1, left[depth]] > target
                )
                if not is_open and corners == CORNERS:
                    is_open = (
                        adjusted[depth, low + 2] + best[low + 2, layer + 1, left[depth]] > target
                        or adjusted[depth, low + 3] + best[low + 3, layer + 1, left[depth]] > target
                    )
                if not is_open:
                    break
            if not is_open:
                depth -= 1
                continue
        if item[depth] >= first_item[g + 1]:
            at[depth] = layer - 1
            if layer > 0:
                item[depth] = first_item[layers[layer - 1]]
            continue
        taken = item[depth]
        x = x_of[taken]
        item[depth] += 1
        work += 1
        if x > left[depth] or held[depth] + holds[taken] > room * ROOM:
            continue
        total = pressed[depth] + presses[taken]
        if total.real > most_pressed.real or total.imag > most_pressed.imag:
            continue
        is_open = True
        for k in range(PRICES):
            low = corners * k
            at_lowest = adjusted[depth, low] + gains[taken, 0] - paid[k, taken]
            at_highest = adjusted[depth, low + 1] + gains[taken, 1] - paid[k, taken]
            adjusted[depth + 1, low], adjusted[depth + 1, low + 1] = at_lowest, at_highest
            is_open = (
                at_lowest + best[low, layer, left[depth] - x] > target
                or at_highest + best[low + 1, layer, left[depth] - x] > target
            )
            if corners == CORNERS:
                for corner in range(ENDS, CORNERS):
                    rest = adjusted[depth, low + corner] + gains[taken, corner] - paid[k, taken]
                    adjusted[depth + 1, low + corner] = rest
                    is_open |= rest + best[low + corner, layer, left[depth] - x] > target
            if not is_open:
                break
        if not is_open:
            continue
        if work > most or depth == MOST_RESIDENTS:
            for above in range(depth + 1):  # what is left of each branch
                rest = np.inf
                for k in range(PRICES):
                    most_here = -np.inf
                    for at_corner in range(corners * k, corners * (k + 1)):
                        here = adjusted[above, at_corner] + best[at_corner, at[above] + 1, left[above]]
                        most_here = max(most_here, here)
                    rest = min(rest, most_here)
                target = max(target, rest)
            counts[0], counts[1] = found, max(work, most + 1)
            return target
        rows[depth], sms[depth] = row_of[taken], x
        depth += 1
        left[depth], pressed[depth], held[depth] = left[depth - 1] - x, total, held[depth - 1] + holds[taken]
        for corner in range(corners):
            value[depth, corner] = value[depth - 1, corner] + gains[taken, corner]
        at[depth] = layer - 1
        if layer > 0:
            item[depth] = first_item[layers[layer - 1]]
        if not is_within(total, hi, NOTHING) or not is_within(lo, total, NOTHING):
            continue
        used = (SM - 1 - left[depth]) / 100.0
        earns = earned_within(value[depth], lo, hi, total)
        for_shares = share_price * max(used, held[depth] / room)
        if earns - for_shares <= target:
            continue
        work += LEAF_STEPS
        earns = -for_shares
        for i in range(depth):
            find_best_offer(
                w, full_ratio, need, spare_need, steps, prices, first, offer_start, offer_member, service, energy,
                own, idle + total, rows[i], sms[i], into,
            )  # fmt: skip
            earns += into[0]
        if earns > target:
            target = earns
            place = found % got_sm.shape[0]
            for i in range(depth):
                got_profile[place, i], got_sm[place, i] = rows[i], sms[i]
            about[place, 0] = depth
            found += 1
    counts[0], counts[1] = found, work
    return target


@njit(
    (WORLD, F2, F1, F1, STEP_PRICES, F1, I8, I1, I1, I1, F2, C2, C2, F1, F8, F8, F8, I8, I2, I2, F2, I2, F2, F2),
    makes_arrays=True,
)
def settle(
    w: TableArrays, full_ratio: Floats, need: Floats, spare_need: Floats, steps: StepPrices, prices: Floats, first: int,
    start: Ints, member: Ints, service: Ints, energy: Floats, pressure: Pressures, added: Pressures, memory: Floats,
    idle: float, room: float, share_price: float, count: int, got_profile: Ints, got_sm: Ints, about: Floats,
    offers: Ints, rates: Floats, spare: Floats,
) -> float:  # fmt: skip
    """Writes the offers and the true rates of the residents of each answer; returns the most that one of them earns.

    A resident that earns nothing there leaves, and so does the one that earns least where memory is short.
    about: (count, pressure on compute and on bandwidth, memory, SM%) of each answer.
    """
    most = 0.0
    gains, best = np.empty(MOST_RESIDENTS), np.empty(3)
    for answer in range(count):
        n = min(int(about[answer, 0]), MOST_RESIDENTS)
        while True:
            total, held, used, earned = complex(idle, 0.0), 0.0, 0.0, 0.0
            for i in range(n):
                total += added[got_profile[answer, i], got_sm[answer, i]]
                held += memory[got_profile[answer, i]]
                used += got_sm[answer, i]
            worst = 0
            for i in range(n):
                row, x = got_profile[answer, i], got_sm[answer, i]
                offers[answer, i] = find_best_offer(
                    w, full_ratio, need, spare_need, steps, prices, first, start, member, service, energy, pressure,
                    total, row, x, best,
                )  # fmt: skip
                gains[i], rates[answer, i], spare[answer, i] = best[0], best[1], best[2]
                if gains[i] < gains[worst]:
                    worst = i
                earned += gains[i]
            if n == 0 or (gains[worst] > 0.0 and held <= room * ROOM):
                break
            n -= 1
            for i in range(worst, n):
                got_profile[answer, i], got_sm[answer, i] = got_profile[answer, i + 1], got_sm[answer, i + 1]
        earned -= share_price * max(used / 100.0, held / room)
        about[answer, 0], about[answer, 1], about[answer, 2] = n, total.real, total.imag
        about[answer, 3], about[answer, 4] = held, used
        most = max(most, earned)
    return most
