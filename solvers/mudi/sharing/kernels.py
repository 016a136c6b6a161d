"""Compiled loops that raise SM% from the least, for any number of GPUs in one call.

Residents are stored one after another: `first[g]` to `first[g + 1]` are those of GPU g. So are the points of their
curves: `start[i]` to `start[i + 1]` are those of resident i. `most_ms` is the time that a batch may take when slowed
by its neighbours.
"""

from __future__ import annotations

from math import floor

import numpy as np
from numpy.typing import NDArray

from solvers.compiled import njit

Floats = NDArray[np.float64]
Whole = NDArray[np.int64]

SLACK = 1e-9  # relative, as in the judge


@njit("float64(int64, int64, int64[::1], float64[::1], int64)", inner=True)
def value_at(start: int, stop: int, percents: Whole, values: Floats, percent: int) -> float:
    """Reads a curve: linear between its points, flat beyond them."""
    if percent <= percents[start]:
        return float(values[start])
    for point in range(start + 1, stop):
        if percent <= percents[point]:
            low, high = percents[point - 1], percents[point]
            share = (percent - low) / (high - low)
            return float(values[point - 1] + (values[point] - values[point - 1]) * share)
    return float(values[stop - 1])


@njit("int64(int64, int64, int64[::1], float64[::1], float64)", inner=True)
def least_whole_percent(start: int, stop: int, percents: Whole, values: Floats, most: float) -> int:
    """Returns the smallest whole SM% at which a curve that never rises is at most `most`, else 0. Closed form."""
    if values[start] <= most:
        return int(percents[start])
    for point in range(start + 1, stop):
        if values[point] <= most:
            low, high = percents[point - 1], percents[point]
            slow, fast = values[point - 1], values[point]
            whole: int = floor(low + (high - low) * (slow - most) / (slow - fast))
            # The division rounds, so the whole SM% below may be fast enough as well.
            if slow + (fast - slow) * ((whole - low) / (high - low)) <= most:
                return whole
            return whole + 1
    return 0


@njit(
    "void(int64[::1], int64[::1], int64[::1], float64[::1], int64[::1], int64[::1], float64[::1],"
    " float64[::1], float64[::1], float64[::1], int64[::1], int64[::1])",
    makes_arrays=True,
)
def raise_from_least(
    first: Whole,
    latency_start: Whole,
    latency_percents: Whole,
    latency_ms: Floats,
    pressure_start: Whole,
    pressure_percents: Whole,
    pressures: Floats,
    sensitivity: Floats,
    most_ms: Floats,
    other_pressure: Floats,
    percents: Whole,
    blocked: Whole,
) -> None:
    """Fills `percents` with a fixed point of what residents need, and `blocked` with 1 + a resident never fast enough.

    Every resident starts at its least SM% and is raised, never lowered, to what its neighbours' current pressure
    requires. That ends, because SM% are whole and at most 100. If pressure never falls with SM%, it ends at the least
    fixed point.
    """
    for gpu in range(first.size - 1):
        begin, end = first[gpu], first[gpu + 1]
        blocked[gpu] = 0
        pressing = np.empty(end - begin)
        for i in range(begin, end):
            percents[i] = latency_percents[latency_start[i]]
            pressing[i - begin] = value_at(
                pressure_start[i], pressure_start[i + 1], pressure_percents, pressures, percents[i]
            )
        rises = True
        while rises and blocked[gpu] == 0:
            rises = False
            for i in range(begin, end):
                neighbours = other_pressure[gpu]
                for j in range(begin, end):
                    if j != i:
                        neighbours += pressing[j - begin]
                most = most_ms[i] / (1 + sensitivity[i] * neighbours) * (1 + SLACK)
                needed = least_whole_percent(latency_start[i], latency_start[i + 1], latency_percents, latency_ms, most)
                if needed == 0:
                    blocked[gpu] = 1 + i - begin
                    break
                if needed > percents[i]:
                    percents[i] = needed
                    pressing[i - begin] = value_at(
                        pressure_start[i], pressure_start[i + 1], pressure_percents, pressures, needed
                    )
                    rises = True
