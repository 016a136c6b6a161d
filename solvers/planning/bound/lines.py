"""Compiled: draws for each offer and SM% a line over the GPU's total pressures that no accepted rate exceeds."""

from __future__ import annotations

from typing import Any

import numpy as np

from solvers.compiled import njit
from solvers.latency.kernels import accepted_load, needed_ratio
from solvers.planning.bound.boxes import felt_from, take_larger
from solvers.planning.bound.step_lines import H2, earned_ends, spare_ends
from solvers.planning.fleet.grids import SM, Floats, Ints
from solvers.planning.fleet.kernels import C1, C2, C16, is_within, slow_by
from solvers.planning.judge.tolerances import SURVIVING_UTILIZATION
from solvers.planning.pressures import Pressures
from solvers.planning.search.arrays import F1, F2, F8, I1, I8, WORLD, TableArrays
from solvers.planning.step_prices import STEP_PRICES, StepPrices

UP = 1.0 + 1.3e-7  # the float32 of a number times this is no smaller than the number
TINY = 1e-30  # an offer that earns something at one end of a line may be there at the other


@njit((WORLD, F2))
def full_ratios(w: TableArrays, into: Floats) -> None:
    """Writes the SLO / exec from which the utilization limit alone binds: into[percentile, batch]."""
    for row in range(into.shape[0]):
        for b in range(into.shape[1]):
            into[row, b] = needed_ratio(w.loads[row, b], w.utilization * w.margin)


@njit(F8(WORLD, F2, I8, I8, I8, F8), inner=True)
def rate_at(w: TableArrays, full_ratio: Floats, service: int, profile: int, x: int, slow: float) -> float:
    """Returns the rate that the best batch accepts if exec, with the margin, is `slow` times that alone."""
    slo, row, full = w.slo_ms[service], w.percentile_row[service], w.utilization * w.margin
    best = 0.0
    for b in range(w.batches.shape[0] - 1, -1, -1):
        exec_ms = w.exec_ms[profile, b, x] * slow
        most = 1000.0 * full * w.batches[b]
        if exec_ms > slo or most <= best * exec_ms:
            continue
        if slo >= full_ratio[row, b] * exec_ms:
            best = most / exec_ms
            continue
        load = min(accepted_load(w.loads[row, b], slo / exec_ms), full)
        best = max(best, 1000.0 * load * w.batches[b] / exec_ms)
    return best


@njit((WORLD, F2, F1, I8, I8, F8, C16, C16, F1), inner=True)
def line(
    w: TableArrays,
    full_ratio: Floats,
    need: Floats,
    offer: int,
    x: int,
    clock: float,
    lo: complex,
    hi: complex,
    ends: Floats,
) -> None:
    """Writes the ends of an offer's line over total pressures lo..hi: 0 where it cannot be on such a GPU.

    The rate falls with what the instance feels. The accepted load is at most that at the least of it, and under a fixed
    load the rate is convex in what is felt: a line above its values at both ends is above it between them.
    """
    ends[0], ends[1] = 0.0, 0.0
    service, profile = w.offer_service[offer], w.offer_profile[offer]
    own, cap = w.pressure[profile, x], need[service]
    if not is_within(own, hi, 0.0) or cap <= 0.0:
        return
    feels, judged = w.sensitivity[profile], w.margin
    if clock != 1.0:
        judged *= clock ** w.clock_exponent[profile]
    anchor = take_larger(lo, own)  # the total is no less with the offer there
    slow = 1.0 + slow_by(feels, anchor - own)
    here = rate_at(w, full_ratio, service, profile, x, slow * judged)
    if here <= 0.0:
        return
    top = min(here, cap)
    slope, across = 0.0, felt_from(feels, anchor, hi)
    if across > 0.0 and here <= cap:  # else it is flat until the cap is met, then convex: a flat line is above both
        slope = (here * slow / (1.0 + slow_by(feels, hi - own)) - top) / across
    ends[0] = (top - slope * felt_from(feels, lo, anchor)) * UP
    ends[1] = max((top + slope * across) * UP, TINY)


@njit(F8(WORLD, I8, I8, I8, F8), inner=True)
def spare_at(w: TableArrays, service: int, profile: int, x: int, slow: float) -> float:
    """Returns what the best batch could carry when a node is lost, if exec, without the margin, is `slow` times that.

    A batch counts whose SLO holds at some rate.
    """
    slo, row, best = w.slo_ms[service], w.percentile_row[service], 0.0
    for b in range(w.batches.shape[0]):
        exec_ms = w.exec_ms[profile, b, x] * slow
        if exec_ms * w.margin > slo or 1000.0 * SURVIVING_UTILIZATION * w.batches[b] <= best * exec_ms:
            continue
        if accepted_load(w.loads[row, b], slo / (exec_ms * w.margin)) > 0.0:
            best = 1000.0 * SURVIVING_UTILIZATION * w.batches[b] / exec_ms
    return best


@njit((WORLD, F1, I8, I8, C16, C16, F1), inner=True)
def spare_line(w: TableArrays, need: Floats, offer: int, x: int, lo: complex, hi: complex, ends: Floats) -> None:
    """Writes the ends of a line over total pressures lo..hi that what is carried when a node is lost never exceeds.

    Fewer batches keep their SLO as pressure rises, and what each could carry is convex in what is felt.
    """
    ends[0], ends[1] = 0.0, 0.0
    service, profile = w.offer_service[offer], w.offer_profile[offer]
    own, cap = w.pressure[profile, x], need[service]
    if not is_within(own, hi, 0.0) or cap <= 0.0:
        return
    feels, anchor = w.sensitivity[profile], take_larger(lo, own)
    slow = 1.0 + slow_by(feels, anchor - own)
    here = spare_at(w, service, profile, x, slow)
    top, slope, across = min(here, cap), 0.0, felt_from(feels, anchor, hi)
    if across > 0.0 and here <= cap:
        slope = (here * slow / (1.0 + slow_by(feels, hi - own)) - top) / across
    ends[0] = (top - slope * felt_from(feels, lo, anchor)) * UP
    ends[1] = (top + slope * across) * UP


@njit((WORLD, F2, F1, F1, I8, I8, F8, C16, C16, H2, H2, H2, H2), makes_arrays=True)
def lines(
    w: TableArrays, full_ratio: Floats, need: Floats, spare_need: Floats, first: int, last: int, clock: float,
    lo: complex, hi: complex, at_lo: Any, at_hi: Any, spare_lo: Any, spare_hi: Any,
) -> None:  # fmt: skip
    """Writes the ends at pressures lo and hi of the lines of offers first..last, and of those of spare capacity."""
    ends = np.empty(2)
    for offer in range(first, last):
        place = offer - first
        for x in range(SM):
            line(w, full_ratio, need, offer, x, clock, lo, hi, ends)
            at_lo[place, x], at_hi[place, x] = np.float32(ends[0]), np.float32(ends[1])
            if place < spare_lo.shape[0]:
                spare_line(w, spare_need, offer, x, lo, hi, ends)
                spare_lo[place, x], spare_hi[place, x] = np.float32(ends[0]), np.float32(ends[1])


@njit((H2, I1, C1, C2, C16, C16, C16, C16, F8, H2, H2, H2, H2))
def narrowed(
    there: Any, profile: Ints, feels: Pressures, pressure: Pressures, lo: complex, hi: complex, from_lo: complex,
    to_hi: complex, least: float, at_lo: Any, at_hi: Any, into_lo: Any, into_hi: Any,
) -> None:  # fmt: skip
    """Writes what lines over lo..hi are worth at the ends of a part, and at least `least`; 0 where no offer can be."""
    for offer in range(at_lo.shape[0]):
        row = profile[offer]
        across = felt_from(feels[row], lo, hi)
        first = felt_from(feels[row], lo, from_lo) / across if across > 0.0 else 0.0
        last = felt_from(feels[row], lo, to_hi) / across if across > 0.0 else 1.0
        for x in range(SM):
            low, high = 0.0, 0.0
            if there[offer, x] > 0.0 and is_within(pressure[row, x], to_hi, 0.0):
                left, right = float(at_lo[offer, x]), float(at_hi[offer, x])
                low = max((left * (1.0 - first) + right * first) * UP, least)
                high = max((left * (1.0 - last) + right * last) * UP, least)
            into_lo[offer, x], into_hi[offer, x] = np.float32(low), np.float32(high)


@njit((WORLD, F2, F1, F1, I8, I8, I8, F8, C16, C16, H2, H2, H2, H2, F1), inner=True)
def lowered(
    w: TableArrays, full_ratio: Floats, need: Floats, spare_need: Floats, offer: int, place: int, x: int, clock: float,
    lo: complex, hi: complex, at_lo: Any, at_hi: Any, spare_lo: Any, spare_hi: Any, ends: Floats,
) -> None:  # fmt: skip
    """Draws an offer's lines again; of the old and the new one, either is above the rate."""
    line(w, full_ratio, need, offer, x, clock, lo, hi, ends)
    new_lo, new_hi = np.float32(ends[0]), np.float32(ends[1])
    if new_lo + new_hi < at_lo[place, x] + at_hi[place, x]:
        at_lo[place, x], at_hi[place, x] = new_lo, new_hi
    if place < spare_lo.shape[0]:
        spare_line(w, spare_need, offer, x, lo, hi, ends)
        new_lo, new_hi = np.float32(ends[0]), np.float32(ends[1])
        if new_lo + new_hi < spare_lo[place, x] + spare_hi[place, x]:
            spare_lo[place, x], spare_hi[place, x] = new_lo, new_hi


@njit((WORLD, STEP_PRICES, F2, F1, F1, F1, I8, F8, C16, C16, I1, F2, C1, C2, F8, H2, H2, H2, H2), makes_arrays=True)
def finer(
    w: TableArrays, steps: StepPrices, full_ratio: Floats, need: Floats, spare_need: Floats, prices: Floats, first: int,
    clock: float, lo: complex, hi: complex, profile: Ints, energy: Floats, feels: Pressures, pressure: Pressures,
    margin: float, at_lo: Any, at_hi: Any, spare_lo: Any, spare_hi: Any,
) -> int:  # fmt: skip
    """Lowers lines that hold over more than lo..hi, but only those that come near the best of their profile.

    For each profile and SM% it computes the offer that promises most, until the next promises less than `margin` of
    the best found. Returns how many it computed.
    """
    count, rows = at_lo.shape[0], energy.shape[0]
    start = np.zeros(rows + 1, dtype=np.int64)
    for offer in range(count):
        start[profile[offer] + 1] += 1
    for row in range(rows):
        start[row + 1] += start[row]
    member, at = np.empty(count, dtype=np.int64), start.copy()
    for offer in range(count):
        member[at[profile[offer]]] = offer
        at[profile[offer]] += 1
    promise_lo, promise_hi = np.empty(count), np.empty(count)
    ends, rates = np.empty(4), np.empty(2)
    looked = 0
    for row in range(rows):
        for x in range(SM):
            for i in range(start[row], start[row + 1]):
                offer = member[i]
                who = w.offer_service[first + offer]
                earned_ends(
                    steps, who, prices[who] - energy[row, x], feels[row], pressure[row, x], lo, hi, at_lo[offer, x],
                    at_hi[offer, x], ends,
                )  # fmt: skip
                spare_ends(steps, who, spare_lo, spare_hi, offer, x, ends)
                promise_lo[i], promise_hi[i] = ends[0], ends[1]
            best_lo, best_hi = 0.0, 0.0
            while True:
                place, most = -1, 1.0
                for i in range(start[row], start[row + 1]):
                    over = max(promise_lo[i] - margin * best_lo, promise_hi[i] - margin * best_hi)
                    if over > 1e-12 and (place < 0 or over > most):
                        place, most = i, over
                if place < 0:
                    break
                offer = member[place]
                lowered(
                    w, full_ratio, need, spare_need, first + offer, offer, x, clock, lo, hi, at_lo, at_hi, spare_lo,
                    spare_hi, rates,
                )  # fmt: skip
                looked += 1
                who = w.offer_service[first + offer]
                earned_ends(
                    steps, who, prices[who] - energy[row, x], feels[row], pressure[row, x], lo, hi, at_lo[offer, x],
                    at_hi[offer, x], ends,
                )  # fmt: skip
                spare_ends(steps, who, spare_lo, spare_hi, offer, x, ends)
                best_lo, best_hi = max(best_lo, ends[0]), max(best_hi, ends[1])
                promise_lo[place], promise_hi[place] = -1.0, -1.0
    return looked


@njit((I8, F1, F1), inner=True)
def together(copies: int, single: Floats, best: Floats) -> None:
    """Writes the most that up to `copies` instances carry together, by the SM% of all."""
    for x in range(SM):
        best[x] = 0.0
    for _ in range(min(copies, SM - 1)):
        has_grown = False
        for x in range(SM - 1, 0, -1):
            most = best[x]
            for y in range(1, x + 1):
                if single[y] > 0.0:
                    most = max(most, best[x - y] + single[y])
            if most > best[x]:
                best[x] = most
                has_grown = True
        if not has_grown:
            break


@njit((WORLD, F2, F1, I8, I8, I8, F1, F1, I1), makes_arrays=True)
def alone(
    w: TableArrays, full_ratio: Floats, need: Floats, first: int, last: int, copies: int, rates: Floats, spare: Floats,
    sms: Ints,
) -> None:  # fmt: skip
    """Writes the most that offers first..last carry on their own GPU, by up to `copies` instances, and the SMs.

    So too what they could carry when a node is lost. It ignores that instances of a service slow each other: the bound
    stays a bound.
    """
    single, best = np.zeros(SM), np.zeros(SM)
    for offer in range(first, last):
        service, profile = w.offer_service[offer], w.offer_profile[offer]
        rates[offer - first], spare[offer - first], sms[offer - first] = 0.0, 0.0, 0
        if need[service] <= 0.0:
            continue
        for x in range(SM):
            single[x] = rate_at(w, full_ratio, service, profile, x, w.margin)
        together(copies, single, best)
        for x in range(SM):
            rate = min(best[x], need[service])
            if rate * UP > rates[offer - first]:
                rates[offer - first], sms[offer - first] = rate * UP, x
        for x in range(SM):
            single[x] = spare_at(w, service, profile, x, 1.0)
        together(copies, single, best)
        for x in range(SM):
            spare[offer - first] = max(spare[offer - first], min(best[x], need[service]) * UP)
