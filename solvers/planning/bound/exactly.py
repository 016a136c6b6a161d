"""Compiled: finds the best residents of a GPU exactly, by branch and bound on a class of total pressure."""

from __future__ import annotations

import numba
import numpy as np

from solvers.compiled import njit
from solvers.planning.bound.lines import rate_at, spare_at
from solvers.planning.fleet.grids import SM, Floats, Ints
from solvers.planning.search.arrays import F1, F2, F8, I1, I2, I8, MOST_RESIDENTS, WORLD, TableArrays
from solvers.planning.step_prices import STEP_PRICES, StepPrices, rounded

F3 = numba.float64[:, :, ::1]
LEAF_STEPS = 50  # of work, to compute the true rates of a pattern
PRICES = 5  # of pressure and memory: the least of what they promise for the rest of a GPU counts
ROOM = 1.0 + 1e-9  # of memory, for sums of floats
NOTHING = 1e-9  # of pressure


@njit((F2, I1, I1, I1, I1, F2, F1, F8, F8, F8, F1, F2), inner=True)
def promise(
    earned: Floats, layers: Ints, start: Ints, row_of: Ints, x_of: Ints, pressure: Floats, memory: Floats, sigma: float,
    mu: float, sm_price: float, values: Floats, best: Floats,
) -> None:  # fmt: skip
    """Writes the most that residents of the first so many layers earn within so many SM%, at these prices."""
    for x in range(SM):
        best[0, x] = 0.0
    for layer in range(layers.shape[0]):
        for x in range(SM):
            values[x] = 0.0
        for i in range(start[layers[layer]], start[layers[layer] + 1]):
            row, x = row_of[i], x_of[i]
            net = earned[row, x] - sigma * pressure[row, x] - mu * memory[row] - sm_price * x
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


@njit((WORLD, F2, F1, F1, STEP_PRICES, F1, I8, I1, I1, I1, F2, F2, F8, I8, I8, F1), inner=True)
def find_best_offer(
    w: TableArrays, full_ratio: Floats, need: Floats, spare_need: Floats, steps: StepPrices, prices: Floats, first: int,
    start: Ints, member: Ints, service: Ints, energy: Floats, pressure: Floats, total: float, row: int, x: int,
    into: Floats,
) -> int:  # fmt: skip
    """Returns the offer of a profile that earns most at a total pressure, -1 if none can be there.

    into: (what it earns, its rate, what it could carry when a node is lost).
    """
    best = -1
    into[0], into[1], into[2] = 0.0, 0.0, 0.0
    for at in range(start[row], start[row + 1]):
        offer = member[at]
        who, profile = service[offer], w.offer_profile[first + offer]
        if need[who] <= 0.0:
            continue
        slow = 1.0 + w.sensitivity[profile].real * max(total - pressure[row, x], 0.0)
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
        WORLD, F2, F1, F1, STEP_PRICES, F1, I8, I1, I1, I1, F2, F2, F8, F2, F2, I1, I1, I1, F2, F1, F8, F8, F8, F8, F8,
        F1, F8, I8, F3, I2, I2, F2, I1,
    ), makes_arrays=True
)  # fmt: skip
def find_dearest(
    w: TableArrays, full_ratio: Floats, need: Floats, spare_need: Floats, steps: StepPrices, prices: Floats, first: int,
    offer_start: Ints, offer_member: Ints, service: Ints, energy: Floats, own: Floats, idle: float,
    at_lo: Floats, at_hi: Floats, start: Ints, member: Ints, turns: Ints, pressure: Floats, memory: Floats, lo: float,
    hi: float, room: float, share_price: float, scale: float, class_prices: Floats, target: float, most: int,
    best: Floats, got_profile: Ints, got_sm: Ints, about: Floats, counts: Ints,
) -> float:  # fmt: skip
    """Returns the most that a GPU of this class earns, or `target` if that is more; after `most` steps, a bound of it.

    Lines tell which branches may reach the target; whole patterns earn their true rates. It takes residents group by
    group, and gives a branch up as soon as some prices of pressure and memory show that the rest cannot reach `target`.
    counts: (patterns found above the target: the last ones are written; steps).
    """
    counts[0], counts[1] = 0, 0
    groups = turns.shape[0]
    first_item, row_of, x_of = (
        np.zeros(groups + 1, np.int64),
        np.empty(at_lo.size, np.int64),
        np.empty(at_lo.size, np.int64),
    )
    items = 0
    for g in range(groups):
        for i in range(start[g], start[g + 1]):
            for x in range(1, SM):
                if at_lo[member[i], x] > 0.0 or at_hi[member[i], x] > 0.0:
                    row_of[items], x_of[items] = member[i], x
                    items += 1
        first_item[g + 1] = items
    layers = np.empty(turns.sum(), np.int64)
    values, tops = np.zeros(SM), np.zeros(groups)
    sigma, mu, sm_price, beyond = np.empty(PRICES), np.empty(PRICES), np.empty(PRICES), np.empty(2 * PRICES)
    step = max(0.5 * abs(class_prices[0]), 0.1 * scale)
    for k in range(PRICES):
        sigma[k] = class_prices[0] + (0.0 if k == 0 or k == 3 else step if k == 1 else -step if k == 2 else 3.0 * step)
        mu[k] = class_prices[1] if k < 3 else 0.0
        sm_price[k] = max(share_price - mu[k] * room, 0.0) / 100.0
        for end in range(2):
            beyond[2 * k + end] = sigma[k] * (hi if end else lo) + max(mu[k] * room - share_price, 0.0)
    for turn in range(2):  # first with all items at the class's prices, then with those that they leave
        count = 0
        for g in np.argsort(tops):
            if first_item[g + 1] > first_item[g]:
                for _ in range(turns[g]):
                    layers[count] = g
                    count += 1
        for k in range(PRICES if turn else 1):
            for end in range(2):
                promise(
                    at_hi if end else at_lo, layers[:count], first_item, row_of, x_of, pressure, memory, sigma[k],
                    mu[k], sm_price[k], values, best[2 * k + end],
                )  # fmt: skip
        if turn:
            break
        items = 0
        for g in range(groups):
            begin, first_item[g] = first_item[g], items
            for i in range(begin, first_item[g + 1]):
                row, x = row_of[i], x_of[i]
                paid = sigma[0] * pressure[row, x] + mu[0] * memory[row] + sm_price[0] * x
                if (
                    beyond[0] + at_lo[row, x] - paid + best[0, count, SM - 1 - x] > target
                    or beyond[1] + at_hi[row, x] - paid + best[1, count, SM - 1 - x] > target
                ):
                    row_of[items], x_of[items] = row, x
                    items += 1
                    tops[g] = max(tops[g], at_lo[row, x], at_hi[row, x])
        first_item[groups] = items
    if count == 0:
        return target
    is_growing = True  # with each resident
    for row in range(pressure.shape[0]):
        is_growing &= pressure[row].min() >= 0.0
    deep = MOST_RESIDENTS + 2  # one more than is tried
    left, pressed, held, value = np.zeros(deep, np.int64), np.zeros(deep), np.zeros(deep), np.zeros((deep, 2))
    at, item = np.zeros(deep, np.int64), np.zeros(deep, np.int64)
    rows, sms = np.zeros(deep, np.int64), np.zeros(deep, np.int64)
    adjusted = np.zeros((deep, 2 * PRICES))
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
                if (
                    adjusted[depth, 2 * k] + best[2 * k, layer + 1, left[depth]] <= target
                    and adjusted[depth, 2 * k + 1] + best[2 * k + 1, layer + 1, left[depth]] <= target
                ):
                    is_open = False
                    break
            if not is_open:
                depth -= 1
                continue
        if item[depth] >= first_item[g + 1]:
            at[depth] = layer - 1
            if layer > 0:
                item[depth] = first_item[layers[layer - 1]]
            continue
        row, x = row_of[item[depth]], x_of[item[depth]]
        item[depth] += 1
        work += 1
        total = pressed[depth] + pressure[row, x]
        if x > left[depth] or held[depth] + memory[row] > room * ROOM or (is_growing and total > hi + NOTHING):
            continue
        is_open = True
        for k in range(PRICES):
            paid = sigma[k] * pressure[row, x] + mu[k] * memory[row] + sm_price[k] * x
            first_end = adjusted[depth, 2 * k] + at_lo[row, x] - paid
            last_end = adjusted[depth, 2 * k + 1] + at_hi[row, x] - paid
            adjusted[depth + 1, 2 * k], adjusted[depth + 1, 2 * k + 1] = first_end, last_end
            if (
                first_end + best[2 * k, layer, left[depth] - x] <= target
                and last_end + best[2 * k + 1, layer, left[depth] - x] <= target
            ):
                is_open = False
                break
        if not is_open:
            continue
        if work > most or depth == MOST_RESIDENTS:
            for above in range(depth + 1):  # what is left of each branch
                rest = np.inf
                for k in range(PRICES):
                    of_first = adjusted[above, 2 * k] + best[2 * k, at[above] + 1, left[above]]
                    of_last = adjusted[above, 2 * k + 1] + best[2 * k + 1, at[above] + 1, left[above]]
                    rest = min(rest, max(of_first, of_last))
                target = max(target, rest)
            counts[0], counts[1] = found, max(work, most + 1)
            return target
        rows[depth], sms[depth] = row, x
        depth += 1
        left[depth], pressed[depth], held[depth] = left[depth - 1] - x, total, held[depth - 1] + memory[row]
        value[depth, 0] = value[depth - 1, 0] + at_lo[row, x]
        value[depth, 1] = value[depth - 1, 1] + at_hi[row, x]
        at[depth] = layer - 1
        if layer > 0:
            item[depth] = first_item[layers[layer - 1]]
        if total < lo - NOTHING or total > hi + NOTHING:
            continue
        part = min(max((total - lo) / (hi - lo), 0.0), 1.0) if hi > lo else 0.0
        used = (SM - 1 - left[depth]) / 100.0
        earns = value[depth, 0] * (1.0 - part) + value[depth, 1] * part
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
    (WORLD, F2, F1, F1, STEP_PRICES, F1, I8, I1, I1, I1, F2, F2, F2, F1, F8, F8, F8, I8, I2, I2, F2, I2, F2, F2),
    makes_arrays=True,
)
def settle(
    w: TableArrays, full_ratio: Floats, need: Floats, spare_need: Floats, steps: StepPrices, prices: Floats, first: int,
    start: Ints, member: Ints, service: Ints, energy: Floats, pressure: Floats, added: Floats, memory: Floats,
    idle: float, room: float, share_price: float, count: int, got_profile: Ints, got_sm: Ints, about: Floats,
    offers: Ints, rates: Floats, spare: Floats,
) -> float:  # fmt: skip
    """Writes the offers and the true rates of the residents of each answer; returns the most that one of them earns.

    A resident that earns nothing there leaves, and so does the one that earns least where memory is short.
    about: (count, pressure, memory, SM%, what it earns) of each answer.
    """
    most = 0.0
    gains, best = np.empty(MOST_RESIDENTS), np.empty(3)
    for answer in range(count):
        n = min(int(about[answer, 0]), MOST_RESIDENTS)
        while True:
            total, held, used, earned = idle, 0.0, 0.0, 0.0
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
        about[answer, 0], about[answer, 1], about[answer, 2], about[answer, 3] = n, total, held, used
        about[answer, 4] = earned
        most = max(most, earned)
    return most
