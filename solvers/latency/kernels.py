"""Compiled loops of the latency table: limits for a percentile, and the accepted load in a few nanoseconds.

A row of limits gives, for one batch and one percentile, the SLO / exec that each load needs. For POINTS loads it holds
the ratio needed, the load gained per ratio from there on, and the load itself; then, for bins of exec / SLO, how many
loads are accepted at the bin's least ratio.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from solvers.compiled import njit

Array: TypeAlias = Any  # numba knows the exact types from the signatures

POINTS = 192
BINS = 512
WIDTH = 3 * POINTS + BINS + 2
BUSY_POINTS = 129
NEVER = 1e300
LONGEST = 1e9  # a larger ratio makes no difference
ATOM = 1e-6  # a request that need not wait takes exactly one exec; the SLO must be longer by this share


@njit("float64(float64[::1], float64)")
def accepted_load(row: Array, ratio: float) -> float:
    """Returns the largest load = rate x exec / batch accepted at this ratio = SLO / exec. It never falls with it."""
    if not ratio >= 1.0 + ATOM:
        return 0.0
    ratio = min(ratio, LONGEST)
    # within the bin, a handful of loads remain to be searched
    bin_ = int(BINS / ratio)
    low = int(row[3 * POINTS + bin_])
    high = int(row[3 * POINTS + bin_ - 1]) if bin_ > 0 else POINTS
    while low < high:
        middle = (low + high) // 2
        if row[middle] <= ratio:
            low = middle + 1
        else:
            high = middle
    if low == 0:
        return 0.0
    at = low - 1
    load = row[2 * POINTS + at] + (ratio - row[at]) * row[POINTS + at]
    if low < POINTS and load > row[2 * POINTS + low]:
        return float(row[2 * POINTS + low])
    return float(load)


@njit("float64(float64[::1], float64)")
def needed_ratio(row: Array, load: float) -> float:
    """Returns the least SLO / exec at which this load is accepted, or NEVER; the inverse of accepted_load."""
    if not load <= row[3 * POINTS - 1]:
        return NEVER
    low, high = 0, POINTS - 1
    while low < high:  # finds the first grid load that is no smaller
        middle = (low + high) // 2
        if row[2 * POINTS + middle] < load:
            low = middle + 1
        else:
            high = middle
    ratio = row[low]
    if low > 0 and row[POINTS + low - 1] > 0.0 and row[low - 1] < NEVER:
        ratio = min(ratio, row[low - 1] + (load - row[2 * POINTS + low - 1]) / row[POINTS + low - 1])
    return float(max(ratio, 1.0 + ATOM))


@njit("float64(float64[::1], int64, float64)")
def busy_at(row: Array, batch: int, load: float) -> float:
    """Returns the share of time a server is busy at timeout 0; `row` has the chances that a start empties the queue."""
    if load <= 0.0:
        return 0.0
    if load >= 1.0:
        return 1.0
    place = load * (BUSY_POINTS - 1)
    cell = int(place)
    none_left = row[cell] + (row[cell + 1] - row[cell]) * (place - cell)
    per_exec = load * batch
    return float(1.0 / (1.0 + none_left * np.exp(-per_exec) / per_exec))


@njit("float64(float64[::1], uint16[::1], float64, float64, int64, int64)", inner=True)
def _plain_need(ratios: Array, codes: Array, step: float, allowed: float, cliff: int, first: int) -> float:
    """Returns the least ratio from ratios[first] on at which the late share is at most `allowed`.

    If `allowed` is over 1, the ratio is less than 1: not a usable SLO, but the curve over loads continues smoothly.
    """
    count = ratios.shape[0]
    enough = -np.log(allowed) / step
    low, high = first, count
    while low < high:  # finds the first grid ratio that is good enough
        middle = (low + high) // 2
        if middle >= cliff:
            good = codes[middle] >= enough
        else:
            good = np.exp(-step * codes[middle]) + 2.0 - ratios[middle] <= allowed
        if good:
            high = middle
        else:
            low = middle + 1
    if low == count:
        return NEVER
    if low == 0:
        return float(2.0 - allowed)
    if low == first:
        return float(ratios[low])
    before = ratios[low - 1]
    width = ratios[low] - before
    if low <= cliff:
        worse = np.exp(-step * codes[low - 1]) + 2.0 - before
        better = np.exp(-step * codes[low]) + 2.0 - ratios[low]
        return float(before + width * min(1.0, (worse - allowed) / (worse - better)))
    return float(before + width * min(1.0, (enough - codes[low - 1]) / (float(codes[low]) - float(codes[low - 1]))))


@njit("float64(float64, float64, float64, float64[::1], float64[::1])", inner=True)
def _waiting(per_exec: float, none_left: float, timeout: float, timeouts: Array, unfilled: Array) -> float:
    """Returns the mean wait for a start, in execs, under a timeout of 0..1.

    The chance of an unfilled batch is log-concave in the timeout, so the interpolated chance is at most the true one.
    """
    last = timeouts.shape[0] - 1
    cell = min(int(timeout * last), last - 1)
    chance = unfilled[cell + 1]
    if chance < 1.0 - 1e-9 and timeout < timeouts[cell + 1]:
        share = (timeout - timeouts[cell]) / (timeouts[cell + 1] - timeouts[cell])
        if chance > 0.0:
            chance = unfilled[cell] * (chance / unfilled[cell]) ** share
    return float(none_left * np.exp(-per_exec * (1.0 - timeout)) * chance / per_exec)


@njit(
    "float64(float64[::1], uint16[::1], float64, float64, int64, float64, float64, float64[::1], float64[::1],"
    " float64)",
    inner=True,
)
def _spare(
    ratios: Array, codes: Array, step: float, missing: float, cliff: int, per_exec: float, none_left: float,
    timeouts: Array, unfilled: Array, ratio: float,
) -> float:  # fmt: skip
    """Returns by how much the allowed late share exceeds the actual at a ratio of 1..2 and the timeout ratio - 1."""
    cell = min(int((ratio - 1.0) * cliff), cliff - 1)
    share = (ratio - ratios[cell]) / (ratios[cell + 1] - ratios[cell])
    late = np.exp(-step * codes[cell]) * (1.0 - share) + np.exp(-step * codes[cell + 1]) * share + 2.0 - ratio
    return float(missing * (1.0 + _waiting(per_exec, none_left, ratio - 1.0, timeouts, unfilled)) - late)


@njit(
    "float64(float64[::1], uint16[::1], float64, float64, int64, float64, float64, float64[::1], float64[::1],"
    " float64)",
    inner=True,
)
def _patient_need(
    ratios: Array, codes: Array, step: float, missing: float, cliff: int, per_exec: float, none_left: float,
    timeouts: Array, unfilled: Array, prompt: float,
) -> float:  # fmt: skip
    """Returns the least ratio at which at most `missing` are late under the timeout ratio - 1, at most 1.

    `prompt` is the ratio needed at timeout 0."""
    if prompt <= 1.0 or none_left <= 0.0:
        return prompt
    if prompt >= 2.0:
        longest = _waiting(per_exec, none_left, 1.0, timeouts, unfilled)
        allowed = missing * (1.0 + longest)
        if np.exp(-step * codes[cliff]) > allowed:
            # Beyond 2, late shares grow at least as fast as the load: so small a gain cannot reach 2 % of load.
            if longest - _waiting(per_exec, none_left, 0.0, timeouts, unfilled) < 0.02:
                return prompt
            return min(prompt, _plain_need(ratios, codes, step, allowed, cliff, cliff))
    # Below 2 both sides change with the ratio; at least 2 - ratio is late at any load, which bounds the search.
    high = min(prompt, 2.0)
    longest = _waiting(per_exec, none_left, high - 1.0, timeouts, unfilled)
    low = max(1.0, 2.0 - missing * (1.0 + longest))
    close = 1e-4 * missing
    if high - low <= close or longest - _waiting(per_exec, none_left, 0.0, timeouts, unfilled) <= 1e-4:
        return high
    # The method of false position, halving the weight of a side that stays; `high` always satisfies the limit.
    lack = -_spare(ratios, codes, step, missing, cliff, per_exec, none_left, timeouts, unfilled, low)
    if lack <= 0.0:
        return low
    spare = _spare(ratios, codes, step, missing, cliff, per_exec, none_left, timeouts, unfilled, high)
    for _ in range(30):
        if high - low <= close:
            break
        middle = min(max(low + (high - low) * lack / (lack + spare), low + 0.5 * close), high - 0.5 * close)
        found = _spare(ratios, codes, step, missing, cliff, per_exec, none_left, timeouts, unfilled, middle)
        if found >= 0.0:
            high, spare, lack = middle, found, 0.5 * lack
        else:
            low, lack, spare = middle, -found, 0.5 * spare
    return float(high)


@njit("void(float64[::1], float64[::1], float64[::1], float64[::1], float64[::1])", inner=True)
def _fill_row(row: Array, needs: Array, prompt: Array, patient: Array, loads: Array) -> None:
    """Writes a row from the ratios that the loads need, some at timeout 0, some with a timeout.

    From each load on, the ratio is assumed to rise as steeply as the steeper of its own cell and the one before: a
    convex curve stays below its own chord, a concave one below the chord before.
    """
    count = loads.shape[0]
    for at in range(count):
        row[at] = needs[at]
        row[2 * count + at] = loads[at]
        slope, steady = 0.0, 0.0
        for cell in range(max(at - 1, 0), min(at + 1, count - 1)):
            width = loads[cell + 1] - loads[cell]
            slope = max(slope, (needs[cell + 1] - needs[cell]) / width)
            steady = max(steady, (prompt[cell + 1] - prompt[cell]) / width)
            if needs[cell] < prompt[cell] or needs[cell + 1] < prompt[cell + 1]:
                slope = max(slope, (patient[cell + 1] - patient[cell]) / width)
        if needs[at] == prompt[at]:  # the slope of timeout 0 is valid from here on as well
            slope = min(slope, steady)
        row[count + at] = 1.0 / slope if slope > 0.0 and 0 < at < count - 1 else 0.0
    accepted = count
    for bin_ in range(BINS + 2):
        least = BINS / (bin_ + 1.0)
        while accepted > 0 and needs[accepted - 1] > least:
            accepted -= 1
        row[3 * count + bin_] = accepted


@njit(
    "void(uint16[:, :, ::1], uint16[:, :, ::1], float32[:, :, ::1], float64[::1], float64[::1], float64[::1], float64,"
    " int64, float64, float64, int64[::1], float64, float64[:, ::1],"
    " float64[:, ::1])",
    makes_arrays=True,
)
def fill_limits(
    low: Array, late: Array, starts: Array, loads: Array, ratios: Array, timeouts: Array, step: float, cliff: int,
    missing: float, worth: float, batches: Array, sure: float, prompt: Array, either: Array,
) -> None:  # fmt: skip
    """Fills the rows of these batches if `missing` may be late: at timeout 0, and with a timeout where it pays.

    A timeout pays where it raises the load by the factor `worth`. The share `sure` of each load is accepted.
    """
    count, lows = loads.shape[0], low.shape[1]
    needs, patient, least = np.empty(count), np.empty(count), np.empty(count)
    timeouts = np.append(0.0, timeouts)
    unfilled = np.ones(timeouts.shape[0])
    for batch in batches:
        for at in range(count):
            per_exec = loads[at] * batch
            none_left = float(starts[batch - 1, at, 0])
            for place in range(1, timeouts.shape[0]):
                unfilled[place] = starts[batch - 1, at, place]
            codes = low[batch - 1, at] if at < lows else late[batch - 1, at - lows]
            known = ratios[: codes.shape[0]]
            allowed = missing * (1.0 + none_left * np.exp(-per_exec) / per_exec)
            needs[at] = _plain_need(known, codes, step, allowed, cliff, 0)
            patient[at] = _patient_need(
                known, codes, step, missing, cliff, per_exec, none_left, timeouts, unfilled, needs[at]
            )
            if at > 0:  # more load never needs a smaller ratio, except by rounding
                needs[at] = max(needs[at], needs[at - 1])
                patient[at] = max(patient[at], patient[at - 1])
            patient[at] = min(patient[at], needs[at])
        row = prompt[batch]
        _fill_row(row, needs, needs, needs, loads)
        following = NEVER
        for at in range(count - 1, -1, -1):
            pays = patient[at] < needs[at] and loads[at] >= worth * accepted_load(row, patient[at])
            following = min(following, patient[at] if pays else needs[at])
            least[at] = following
        _fill_row(either[batch], least, needs, patient, loads)
        for rows in (prompt, either):
            rows[batch, count : 3 * count] *= sure
