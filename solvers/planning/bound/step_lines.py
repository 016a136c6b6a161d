"""Compiled: what an instance earns by rates rounded in steps, by lines over the GPU's total pressures."""

from __future__ import annotations

from math import floor
from typing import Any

import numba

from solvers.compiled import njit
from solvers.planning.bound.boxes import felt_from, take_larger
from solvers.planning.fleet.grids import Floats, Ints
from solvers.planning.fleet.kernels import C16
from solvers.planning.search.arrays import F1, F8, I1, I8
from solvers.planning.step_prices import STEP_PRICES, StepPrices, rounded

H2 = numba.float32[:, ::1]
UP = 1.0 + 1e-12  # more than float64 loses in these few operations
MOST_KINKS = 64  # of a rounding within a line: with more, the line is flat


@njit((F8, F8, F8, F8, F8, F8, F1), inner=True)
def step_line(
    length: float, rise: float, least: float, most: float, rate_lo: float, rate_hi: float, ends: Floats
) -> None:
    """Writes the ends of a line that no rounded rate exceeds, given the rate's own line, over what is felt: 0..most.

    The resident's own pressure leaves at least `least`. The line starts there at the rounded rate, and falls as steeply
    as the other end and the places where a step is full allow: between those the rounded rate is convex.
    """
    if length == 0.0:
        ends[0], ends[1] = 1.0, 1.0
        return
    if length < 0.0 and max(rate_lo, rate_hi) * UP < -0.25 * length:  # it fills as much as a line has, end to end
        ends[0], ends[1] = rounded(rate_lo * UP, length, rise) * UP, rounded(rate_hi * UP, length, rise) * UP
        return
    if least >= most or length < 0.0:
        ends[0] = ends[1] = rounded(max(rate_lo, rate_hi) * UP, length, rise) * UP
        return
    first = (rate_lo + (rate_hi - rate_lo) * (least / most)) * UP
    last = min(rate_hi, first)
    top = rounded(first, length, rise) * UP
    ends[0], ends[1] = top, top
    low, high = floor(last / length), floor(first / length)
    if first - last <= 1e-9 * first or high - low > MOST_KINKS:
        return
    slope = (top - rounded(last, length, rise) * UP) / (first - last)
    for step in range(int(low), int(high) + 1):
        full = (step + rise) * length
        if last < full < first:
            slope = min(slope, (top - (step + 1) * UP) / (first - full))
    if slope > 0.0:
        fall = slope * (first - last) * (1.0 - 1e-9)
        ends[1] = top - fall
        ends[0] = top + fall * (least / (most - least))


@njit((STEP_PRICES, I8, F8, C16, C16, C16, C16, F8, F8, F1), inner=True)
def earned_ends(
    steps: StepPrices, service: int, net: float, feels: complex, own: complex, lo: complex, hi: complex,
    rate_lo: float, rate_hi: float, ends: Floats,
) -> None:  # fmt: skip
    """Writes what a resident earns at the ends of a class: its rate at a net price, and its steps at theirs.

    `ends` has two more entries, to write on.
    """
    line = ends[2:]
    net = max(net, 0.0)
    ends[0], ends[1] = net * rate_lo, net * rate_hi
    if rate_hi <= 0.0 or steps.start[service] == steps.start[service + 1]:  # it cannot be there, or has no steps
        return
    least, most = felt_from(feels, lo, take_larger(lo, own)), felt_from(feels, lo, hi)
    for place in range(steps.start[service], steps.start[service + 1]):
        step_line(steps.length[place], steps.rise[place], least, most, rate_lo, rate_hi, line)
        ends[0] += steps.price[place] * line[0]
        ends[1] += steps.price[place] * line[1]


@njit((STEP_PRICES, I8, H2, H2, I8, I8, F1), inner=True)
def spare_ends(steps: StepPrices, service: int, spare_lo: Any, spare_hi: Any, offer: int, x: int, ends: Floats) -> None:
    """Adds what a resident earns at the ends of a class by what it could carry when a node is lost.

    There are no lines where all that must survive is dedicated.
    """
    if steps.spare[service] > 0.0 and offer < spare_lo.shape[0]:
        ends[0] += steps.spare[service] * spare_lo[offer, x]
        ends[1] += steps.spare[service] * spare_hi[offer, x]


@njit((STEP_PRICES, I1, F1, F1))
def steps_earned(steps: StepPrices, service: Ints, rate: Floats, into: Floats) -> None:
    """Adds to each entry of `into` what this rate of this service earns by its steps."""
    for row in range(service.shape[0]):
        for place in range(steps.start[service[row]], steps.start[service[row] + 1]):
            into[row] += steps.price[place] * rounded(rate[row], steps.length[place], steps.rise[place])
