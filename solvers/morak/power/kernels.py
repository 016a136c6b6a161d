"""Compiled loops that enumerate every way to split one GPU."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from solvers.compiled import njit

Numbers = NDArray[np.float64]
Whole = NDArray[np.int64]
Table = NDArray[np.float64]

BINS = 4096  # of watts, to drop early an option that draws more for less worth


@njit(
    "int64(int64[:], float64[:, :], float64[:, :], float64, float64[:], float64[:, :], float64[:], float64[:], int64,"
    " float64, int64[:], float64[:], int64[:])",
    makes_arrays=True,
    inner=True,
)
def fit_batches(
    residents: Whole,
    exec_ms: Table,
    memory_gib: Table,
    gpu_memory_gib: float,
    limit_ms: Numbers,
    batch_worth: Table,
    most_worth: Numbers,
    slowed: Numbers,
    count: int,
    tolerance: float,
    chosen: Whole,
    worth: Numbers,
    trial: Whole,
) -> int:
    """Finds the batches of most worth that meet the limits and fit into memory; returns 1, or 0 if there are none.

    `slowed` is each resident's interference x clock factor; `worth[0]` receives the worth per second."""
    batches = exec_ms.shape[1]
    memory = 0.0
    total = 0.0
    for place in range(count):
        item = residents[place]
        best = -1
        best_worth = -1.0
        for batch in range(batches):
            took = exec_ms[item, batch] * slowed[place]
            if took <= limit_ms[item] * (1.0 - tolerance):
                gain = min(batch_worth[item, batch] / took, most_worth[item])
                if gain > best_worth:
                    best, best_worth = batch, gain
        if best < 0:
            return 0
        chosen[place] = best
        memory += memory_gib[item, best]
        total += best_worth
    if memory <= gpu_memory_gib:
        worth[0] = total
        return 1
    # Too large together: search depth first, bounded by the most worth and the least memory of the rest.
    rest_worth = np.zeros(count + 1, np.float64)
    rest_memory = np.zeros(count + 1, np.float64)
    for back in range(count):
        place = count - 1 - back
        item = residents[place]
        least, most = np.inf, 0.0
        for batch in range(batches):
            took = exec_ms[item, batch] * slowed[place]
            if took <= limit_ms[item] * (1.0 - tolerance):
                least = min(least, memory_gib[item, batch])
                most = max(most, min(batch_worth[item, batch] / took, most_worth[item]))
        rest_worth[place] = rest_worth[place + 1] + most
        rest_memory[place] = rest_memory[place + 1] + least
    taken_worth = np.zeros(count + 1, np.float64)
    taken_memory = np.zeros(count + 1, np.float64)
    worth[0] = -1.0
    place = 0
    trial[0] = -1
    while place >= 0:
        trial[place] += 1
        if trial[place] == batches:
            place -= 1
            continue
        item = residents[place]
        took = exec_ms[item, trial[place]] * slowed[place]
        if took > limit_ms[item] * (1.0 - tolerance):
            continue
        memory = taken_memory[place] + memory_gib[item, trial[place]]
        total = taken_worth[place] + min(batch_worth[item, trial[place]] / took, most_worth[item])
        if memory + rest_memory[place + 1] > gpu_memory_gib or total + rest_worth[place + 1] <= worth[0]:
            continue
        if place + 1 < count:
            place += 1
            taken_memory[place] = memory
            taken_worth[place] = total
            trial[place] = -1
        else:
            worth[0] = total
            for seat in range(count):
                chosen[seat] = trial[seat]
    return 1 if worth[0] >= 0.0 else 0


@njit(
    "int64(int64[:], int64[:], float64[:, :], float64[:, :], float64[:], float64[:], float64[:], float64[:, :],"
    " float64[:], float64[:, :], float64[:, :], float64, float64, float64, int64, int64, int64[:], float64[:], int64,"
    " float64, int64[:, :], int64[:], float64[:, :])",
    makes_arrays=True,
)
def enumerate_splits(
    share: Whole,
    kind: Whole,
    exec_ms: Table,
    memory_gib: Table,
    pressure: Numbers,
    sensitivity: Numbers,
    limit_ms: Numbers,
    batch_worth: Table,
    most_worth: Numbers,
    slower: Table,
    power_w: Table,
    gpu_memory_gib: float,
    idle_w: float,
    cap_w: float,
    most: int,
    most_alike: int,
    fixed: Whole,
    per_percent: Numbers,
    budget: int,
    tolerance: float,
    out_items: Whole,
    visited: Whole,
    out_values: Table,
) -> int:
    """Enumerates multisets of items (a model at an SM%) that fit one GPU, with the best batches at every clock.

    It writes those that no earlier one beats at fewer watts: items and batches, then clock, watts and worth. It
    returns how many it wrote, or -1 if `budget` sets were examined and more remain. More residents only mean more
    pressure, watts and memory, so a set that fails at every clock is not extended. The items of `fixed` are in every
    set; no item is added to `most_alike` of its kind.

    With `per_percent`, the most worth of an SM% of each item and of all after it, only the set of most worth is looked
    for: sets that cannot reach more than the best so far are passed over, since neighbours only make items slower."""
    items = share.shape[0]
    clocks = slower.shape[1]
    stack = np.full(most, -1, np.int64)
    chosen = np.zeros(most, np.int64)
    trial = np.zeros(most, np.int64)
    slowed = np.zeros(most, np.float64)
    worth = np.zeros(1, np.float64)
    entered = np.zeros(most, np.bool_)  # whether this depth's item counts in `used`
    beaten = np.full(BINS + 1, -1.0)  # most worth seen at or below this bin of watts
    kept = fixed.shape[0]
    depth = kept
    used = 0
    written = 0
    visited[0] = 0
    for place in range(kept):
        stack[place] = fixed[place]
        used += int(share[fixed[place]])
    begins = kept > 0  # with the fixed items alone
    is_bounded = per_percent.shape[0] > 0
    reached = np.zeros(most + 1, np.float64)  # by number of residents: the most worth of the set at any clock
    best, best_w = 0.0, np.inf
    while depth >= kept:
        item = 0
        if begins:
            begins = False
            depth = kept - 1
        else:
            # Take the next item at this depth; items are in rising order, so each set occurs once.
            if entered[depth]:
                used -= int(share[stack[depth]])
            stack[depth] += 1
            if stack[depth] >= items:
                entered[depth] = False
                depth -= 1
                continue
            item = int(stack[depth])
            if is_bounded and reached[depth] + per_percent[item] * (100 - used) <= best:
                entered[depth] = False
                depth -= 1
                continue
            used += int(share[item])
            entered[depth] = True
            alike = 1
            for place in range(depth):
                if kind[stack[place]] == kind[item]:
                    alike += 1
            if alike > most_alike:
                continue
        if used > 100:
            continue
        if visited[0] >= budget:
            return -1
        visited[0] += 1
        count = depth + 1
        total_pressure = 0.0
        for place in range(count):
            total_pressure += pressure[stack[place]]
        grows = False
        reached[count] = 0.0
        for clock in range(clocks):
            watts = idle_w
            for place in range(count):
                other = stack[place]
                watts += power_w[other, clock]
                slowed[place] = (1.0 + sensitivity[other] * (total_pressure - pressure[other])) * slower[other, clock]
            if watts > cap_w * (1.0 - tolerance):
                continue
            if fit_batches(
                stack, exec_ms, memory_gib, gpu_memory_gib, limit_ms, batch_worth, most_worth, slowed, count,
                tolerance, chosen, worth, trial,
            ) == 0:  # fmt: skip
                continue
            grows = True
            reached[count] = max(reached[count], worth[0])
            if is_bounded and (worth[0] < best or (worth[0] == best and watts >= best_w)):
                continue
            if worth[0] >= best:
                best, best_w = worth[0], watts
            step = min(BINS, int(BINS * watts / cap_w))
            if step > 0 and beaten[step - 1] >= worth[0]:
                continue
            if written == out_items.shape[0]:
                return -1
            for place in range(count):
                out_items[written, place] = stack[place]
                out_items[written, most + place] = chosen[place]
            out_items[written, 2 * most] = count
            out_items[written, 2 * most + 1] = clock
            out_values[written, 0] = watts
            out_values[written, 1] = worth[0]
            written += 1
            at = step
            while at <= BINS and beaten[at] < worth[0]:
                beaten[at] = worth[0]
                at += 1
        if not grows:
            # Failing at every clock, for watts at the high ones and for time at the low ones, only gets worse.
            continue
        if depth + 1 < most:
            depth += 1
            stack[depth] = item - 1
            entered[depth] = False
    return written
