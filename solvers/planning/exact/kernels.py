"""Compiled: lists every set of residents that a GPU can hold, and its worth at prices of the services' rates."""

from __future__ import annotations

from typing import Any, NamedTuple

import numba
import numpy as np

from solvers.compiled import njit
from solvers.latency.kernels import accepted_load
from solvers.planning.fleet.grids import Floats, Ints
from solvers.planning.step_prices import STEP_PRICES, StepPrices, rounded


class ExactOptions(NamedTuple):
    """The shapes that may run on a GPU of a site: (offer, SM%) by slot, which holds one of its options or none.

    `caps[option, level, stair]` is the largest rate at the highest clock next to neighbours of at least this level of
    pressure, by batches that take at most `stairs[option, stair]` of memory.
    """

    slot_start: Ints  # [slots + 1] into options
    offer: Ints
    service: Ints
    sm: Ints
    dedicated: Ints
    pressure: Floats
    watts: Floats  # [clock, option]
    caps: Floats
    stairs: Floats  # [option, stair], rising; infinite where there are no more
    stair_count: Ints
    exec_ms: Floats  # [option, stair] of the batch that a stair adds, alone, at the highest clock
    batch: Floats  # [option, stair]
    batch_number: Ints  # [option, stair], into the tables' batches
    sensitivity: Floats
    slowdown: Floats  # [clock, option]
    row: Floats  # [option, stair, width]: accepted loads of that batch
    slo_ms: Floats
    step: float  # of pressure from level to level
    memory_gib: float
    idle_w: float
    max_w: float
    most: int  # residents
    services: int
    utilization: float
    margin: float


_f: Any = np.zeros


def _i() -> Ints:
    return np.zeros(1, dtype=np.int64)


_typeof: Any = numba.typeof
OPTIONS: Any = _typeof(
    ExactOptions(
        _i(), _i(), _i(), _i(), _i(), _f(1), _f((1, 1)), _f((1, 1, 1)), _f((1, 1)), _i(), _f((1, 1)), _f((1, 1)),
        np.zeros((1, 1), dtype=np.int64), _f(1), _f((1, 1)), _f((1, 1, 1)), _f(1), 0.0, 0.0, 0.0, 0.0, 0, 0, 0.0, 0.0,
    )
)  # fmt: skip
F8, I8 = numba.float64, numba.int64
TUPLE: Any = numba.types.Tuple
F1, F2, F3 = F8[::1], F8[:, ::1], F8[:, :, ::1]
B1 = numba.boolean
I1, I2 = I8[::1], I8[:, ::1]
U2 = numba.int32[:, ::1]
COARSE = 32  # levels of a GPU's whole pressure, each bounded by itself
HALVINGS = 8  # in search of the best toll
MORE = 1e-9  # by which a pattern must be better to be called better
STAIRS = 256  # a code is option x 256 + stair, -1 for an empty slot


@njit(F8(OPTIONS, I8, I8, I8, F8), inner=True)
def rate_of(o: ExactOptions, option: int, clock: int, stair: int, beside: float) -> float:
    """Returns the rate of the batch that a stair adds, next to neighbours of this pressure."""
    exec_ms = o.exec_ms[option, stair] * (1.0 + o.sensitivity[option] * beside) * o.slowdown[clock, option]
    judged = exec_ms * o.margin
    load = accepted_load(o.row[option, stair], o.slo_ms[option] / judged)
    rate: float = 1000.0 * o.batch[option, stair] * min(load / judged, o.utilization / exec_ms)
    return rate


@njit(F8(OPTIONS, I8, I8, I8, F8))
def cap_of(o: ExactOptions, option: int, clock: int, last: int, beside: float) -> float:
    """Returns the largest rate of the batches up to stair `last`, next to neighbours of this pressure."""
    most = 0.0
    for j in range(last + 1):
        most = max(most, rate_of(o, option, clock, j, beside))
    return most


@njit((OPTIONS,))
def fill_caps(o: ExactOptions) -> None:
    """Fills the table of rates."""
    for option in range(o.caps.shape[0]):
        for level in range(o.caps.shape[1]):
            most = 0.0
            for j in range(o.stair_count[option]):
                most = max(most, rate_of(o, option, 0, j, level * o.step))
                o.caps[option, level, j] = most


@njit(F8(OPTIONS, I8, I8, I8, I8), inner=True)
def cap_at(o: ExactOptions, clock: int, option: int, level: int, stair: int) -> float:
    """Returns the largest rate at a level of the neighbours' pressure: lower clocks are rare, and not tabulated."""
    cap: float = o.caps[option, level, stair] if clock == 0 else cap_of(o, option, clock, stair, level * o.step)
    return cap


@njit(F8(F1, STEP_PRICES, I8, F8), inner=True)
def earned(v: Floats, steps: StepPrices, service: int, part: float) -> float:
    """Returns what a part of a service's need earns: by its price, and by the steps that it fills."""
    worth = v[service] * part
    for place in range(steps.start[service], steps.start[service + 1]):
        worth += steps.price[place] * rounded(part, steps.length[place], steps.rise[place])
    return float(worth)


@njit(I8(OPTIONS, F8), inner=True)
def level_of(o: ExactOptions, pressure: float) -> int:
    """Returns the level of the table that is no higher than this pressure."""
    level: int = max(0, min(o.caps.shape[1] - 1, int(pressure / o.step - 1e-9)))
    return level


@njit(F8(OPTIONS, F1, F8, F2, F1), makes_arrays=True, inner=True)
def knapsack(o: ExactOptions, value: Floats, toll: float, worth: Floats, taken: Floats) -> float:
    """Fills `worth[slot, room]`: the most that this and later slots are worth in so many SM%, at a toll on pressure.

    Returns the pressure of the best of all; a knapsack writes on `taken`.
    """
    slots = o.slot_start.shape[0] - 1
    best, by = np.zeros(101), np.zeros(101)
    pressure = np.zeros((slots + 1, 101))
    worth[slots, :] = 0.0
    for slot in range(slots - 1, -1, -1):
        best[:] = 0.0
        for option in range(o.slot_start[slot], o.slot_start[slot + 1]):
            net, sm = value[option] - toll * o.pressure[option], o.sm[option]
            if net > best[sm]:
                best[sm], by[sm] = net, o.pressure[option]
        count = 0
        for sm in range(1, 101):
            if best[sm] > 0.0:
                taken[count] = sm
                count += 1
        for room in range(101):
            most, load = worth[slot + 1, room], pressure[slot + 1, room]
            for k in range(count):
                sm = int(taken[k])
                if sm > room:
                    break
                if best[sm] + worth[slot + 1, room - sm] > most:
                    most = best[sm] + worth[slot + 1, room - sm]
                    load = by[sm] + pressure[slot + 1, room - sm]
            worth[slot, room], pressure[slot, room] = most, load
    load_of_all: float = pressure[0, 100]
    return load_of_all


@njit((OPTIONS, F1, F1, STEP_PRICES, F2, F1, F3, F1), makes_arrays=True, inner=True)
def bound_levels(
    o: ExactOptions, need: Floats, v: Floats, steps: StepPrices, value: Floats, toll: Floats, worth: Floats,
    bound: Floats,
) -> None:  # fmt: skip
    """For each coarse level of a GPU's whole pressure: what an option is worth at most on a GPU of that level, and what
    all its residents together are worth at most.

    The pressure of all is below the level's upper edge; a toll on what passes it makes the bound the least it can be.
    """
    width = o.step * o.caps.shape[1] / COARSE
    taken = np.zeros(101)
    for level in range(COARSE):
        for option in range(o.sm.shape[0]):
            at = level_of(o, level * width - o.pressure[option])
            service = o.service[option]
            cap = o.caps[option, at, o.stair_count[option] - 1]
            value[level, option] = earned(v, steps, service, min(cap / need[service], 1.0))
        edge = (level + 1) * width
        low, high = 0.0, 0.0
        load = knapsack(o, value[level], 0.0, worth[level], taken)
        if load > edge:
            high = max(worth[level, 0, 100] / load, 1e-9)
            while knapsack(o, value[level], high, worth[level], taken) > edge:
                low, high = high, 2.0 * high
            for _ in range(HALVINGS):
                middle = 0.5 * (low + high)
                if knapsack(o, value[level], middle, worth[level], taken) > edge:
                    low = middle
                else:
                    high = middle
            knapsack(o, value[level], high, worth[level], taken)
        toll[level] = high
        bound[level] = worth[level, 0, 100] + high * edge


@njit(I8(OPTIONS, F1, F1, STEP_PRICES, F1, B1, U2, F2, I8, I1, F8, I2), inner=True)
def write_pattern(
    o: ExactOptions, need: Floats, v: Floats, steps: StepPrices, floor: Floats, only_best: bool, codes: Any,
    rates: Floats, count: int, at: Ints, pressure: float, scratch: Ints,
) -> int:  # fmt: skip
    """Write the set of residents `at` (an option for each slot; none: below the slot's first) from row `count` on.

    Once for every choice of batches that fits into memory and leaves room for none larger, if it is worth the floor;
    if only the best is wanted, row 0 keeps it and the floor rises. Returns the new count.
    """
    chosen, where, level, stair = scratch[0], scratch[1], scratch[2], scratch[3]
    n, alone = 0, False
    for slot in range(at.shape[0]):
        if at[slot] >= o.slot_start[slot]:
            chosen[n], where[n] = at[slot], slot
            alone = alone or o.dedicated[at[slot]] == 1
            n += 1
    if n == 0 or (alone and n > 1):
        return count
    clock = 0
    while True:  # the highest at which the board holds its watts
        drawn = o.idle_w
        for k in range(n):
            drawn += o.watts[clock, chosen[k]]
        if drawn <= o.max_w:
            break
        clock += 1
        if clock == o.slowdown.shape[0]:
            return count
    full = 0.0
    for k in range(n):
        level[k] = level_of(o, pressure - o.pressure[chosen[k]])
        stair[k] = o.stair_count[chosen[k]] - 1
        full += o.stairs[chosen[k], stair[k]]
        if cap_at(o, clock, chosen[k], level[k], stair[k]) <= 0.0:
            return count  # the others do as well without it
    if full > o.memory_gib:
        stair[:n] = 0
    while True:
        used, worth = 0.0, 0.0
        for k in range(n):
            used += o.stairs[chosen[k], stair[k]]
        good = used <= o.memory_gib
        if good and full > o.memory_gib:
            for k in range(n):
                if stair[k] + 1 < o.stair_count[chosen[k]]:
                    grown = used - o.stairs[chosen[k], stair[k]] + o.stairs[chosen[k], stair[k] + 1]
                    good = good and grown > o.memory_gib
        for k in range(n):
            if good:
                service, cap = o.service[chosen[k]], cap_at(o, clock, chosen[k], level[k], stair[k])
                good = cap > 0.0
                worth += earned(v, steps, service, min(cap / need[service], 1.0))
        if good and worth >= floor[0]:
            row = 0 if only_best else count
            if only_best:
                floor[0] = worth * (1.0 + MORE) + MORE
            if row < codes.shape[0]:
                codes[row, :] = -1
                rates[row, :] = 0.0
                for k in range(n):
                    service, cap = o.service[chosen[k]], cap_at(o, clock, chosen[k], level[k], stair[k])
                    rates[row, service] = min(cap / need[service], 1.0)
                    codes[row, where[k]] = chosen[k] * STAIRS + stair[k]
            count += 1
        if full <= o.memory_gib:
            return count
        k = 0
        while k < n and stair[k] + 1 >= o.stair_count[chosen[k]]:
            stair[k] = 0
            k += 1
        if k == n:
            return count
        stair[k] += 1


@njit(I8(OPTIONS, F1, F1, STEP_PRICES, F1, B1, U2, F2, I8, I8, I8, I8, F1, F8, F2), makes_arrays=True, inner=True)
def find_at_level(
    o: ExactOptions, need: Floats, v: Floats, steps: StepPrices, floor: Floats, only_best: bool, codes: Any,
    rates: Floats, limit: int, sm_step: int, count: int, level: int, value: Floats, toll: float, worth: Floats,
) -> int:  # fmt: skip
    """Writes, from row `count` on, the sets of residents whose pressure is of this coarse level."""
    slots = o.slot_start.shape[0] - 1
    width = o.step * o.caps.shape[1] / COARSE
    edge = (level + 1) * width
    to_come = np.zeros(slots + 1)  # pressure that this slot and later ones can add
    for slot in range(slots - 1, -1, -1):
        most = 0.0
        for option in range(o.slot_start[slot], o.slot_start[slot + 1]):
            most = max(most, o.pressure[option])
        to_come[slot] = to_come[slot + 1] + most
    at = o.slot_start[:-1] - 1  # option tried in each slot; one before the first: none
    sm_left = np.full(slots + 1, 100)
    memory_left = np.full(slots + 1, o.memory_gib)
    pressure = np.zeros(slots + 1)
    held = np.full(slots + 1, toll * edge)  # what has been chosen is worth at most, after the toll
    residents = np.zeros(slots + 1, dtype=np.int64)
    scratch = np.zeros((4, slots), dtype=np.int64)
    depth, fresh = 0, True
    while depth >= 0 and count <= limit:
        if fresh:
            dull = held[depth] + worth[depth, sm_left[depth]] < floor[0] - 1e-12
            dull = dull or pressure[depth] > edge * (1.0 + 1e-9)
            dull = dull or pressure[depth] + to_come[depth] < level * width * (1.0 - 1e-9)
            if depth == slots and not dull and min(int(pressure[depth] / width), COARSE - 1) == level:
                count = write_pattern(
                    o, need, v, steps, floor, only_best, codes, rates, count, at, pressure[depth], scratch
                )
            if depth == slots or dull:
                depth -= 1
                fresh = False
                continue
            at[depth] = o.slot_start[depth] - 1
            sm_left[depth + 1] = sm_left[depth]
            memory_left[depth + 1] = memory_left[depth]
            pressure[depth + 1] = pressure[depth]
            held[depth + 1] = held[depth]
            residents[depth + 1] = residents[depth]
            depth += 1
            continue
        at[depth] += 1
        option = at[depth]
        if option >= o.slot_start[depth + 1]:
            depth -= 1
            continue
        if o.sm[option] % sm_step:
            continue
        floor[1] -= 1.0
        if floor[1] < 0.0:
            return count
        if only_best and value[option] <= 0.0:
            continue  # the others are worth as much without it
        sm_left[depth + 1] = sm_left[depth] - o.sm[option]
        memory_left[depth + 1] = memory_left[depth] - o.stairs[option, 0]
        if sm_left[depth + 1] < 0 or memory_left[depth + 1] < 0.0 or residents[depth] >= o.most:
            continue
        pressure[depth + 1] = pressure[depth] + o.pressure[option]
        held[depth + 1] = held[depth] + value[option] - toll * o.pressure[option]
        residents[depth + 1] = residents[depth] + 1
        depth += 1
        fresh = True
    return count


@njit(I8(OPTIONS, F1, F1, STEP_PRICES, F1, B1, U2, F2, I8, I8), makes_arrays=True)
def find_patterns(
    o: ExactOptions, need: Floats, v: Floats, steps: StepPrices, floor: Floats, only_best: bool, codes: Any,
    rates: Floats, limit: int, sm_step: int,
) -> int:  # fmt: skip
    """Writes every set of residents worth `floor[0]` at prices v, with the most it carries in parts of the need.

    Returns how many there are; beyond the arrays' rows they are only counted, and beyond `limit` the search ends. It
    also ends after `floor[1]` steps, which it counts down: below 0, some may be missing. With `only_best`, row 0 holds
    the best one, and the result 0 means that none is worth so much. Residents have multiples of `sm_step` SM% only.

    `floor[2]` becomes what no set of residents is worth more than, by the knapsacks alone.

    It takes a level of the residents' whole pressure at a time, the most promising first. It chooses residents slot by
    slot, and goes no further where the knapsack proves that the slots to come cannot add enough.
    """
    slots = o.slot_start.shape[0] - 1
    value, worth = np.zeros((COARSE, o.sm.shape[0])), np.zeros((COARSE, slots + 1, 101))
    toll, bound = np.zeros(COARSE), np.zeros(COARSE)
    bound_levels(o, need, v, steps, value, toll, worth, bound)
    floor[2] = bound.max()
    count = 0
    for level in np.argsort(-bound):
        if bound[level] < floor[0] - 1e-12 or count > limit or floor[1] < 0.0:
            break
        count = find_at_level(
            o, need, v, steps, floor, only_best, codes, rates, limit, sm_step, count, level, value[level],
            toll[level], worth[level],
        )  # fmt: skip
    return count


@njit((OPTIONS, U2, F2, F2))
def exact_rates(o: ExactOptions, codes: Any, rates: Floats, about: Floats) -> None:
    """Writes the rates of patterns at the exact pressure of their neighbours; `about` is (clock, watts) of each."""
    slots = codes.shape[1]
    for p in range(codes.shape[0]):
        total = 0.0
        for slot in range(slots):
            if codes[p, slot] >= 0:
                total += o.pressure[codes[p, slot] // STAIRS]
        clock = 0
        while True:
            drawn = o.idle_w
            for slot in range(slots):
                if codes[p, slot] >= 0:
                    drawn += o.watts[clock, codes[p, slot] // STAIRS]
            if drawn <= o.max_w or clock + 1 == o.slowdown.shape[0]:
                break
            clock += 1
        about[p, 0], about[p, 1] = clock, drawn
        rates[p, :] = 0.0
        for slot in range(slots):
            if codes[p, slot] >= 0:
                option, last = codes[p, slot] // STAIRS, codes[p, slot] % STAIRS
                beside = max(total - o.pressure[option], 0.0)
                rates[p, o.service[option]] = cap_of(o, option, clock, last, beside)
