"""A fixed grid of rates, and the search for the largest that keeps a promise."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import ceil, exp, floor, log

STEPS = 2048
STEP_LOG = 0.0075  # of the rate's logarithm
LEAST_RATE_PER_SECOND = 0.001
FIRST_LEAP = 2  # of steps, where nothing says how fast the excess rises
MOST_LEAP = 64
MOST_EXCESS = 3.0  # that lines between looks go by: an overloaded server misses everything


def rate_of(step: int) -> float:
    """Returns the rate of this step."""
    return LEAST_RATE_PER_SECOND * exp(STEP_LOG * step)


def step_of(rate_per_second: float) -> int:
    """Returns the largest step whose rate is at most this one."""
    if rate_per_second < LEAST_RATE_PER_SECOND:
        return 0
    return floor(min(STEPS - 1, log(rate_per_second / LEAST_RATE_PER_SECOND) / STEP_LOG))


def largest(excess: Callable[[int], float], start: int, most: int) -> int:
    """Returns a step with an excess of at most 0 whose next has more, at most this one; 0 where none has.

    Where the excess rises with the step there is only one, wherever the search starts. It follows the line through the
    last two looks until the step is between two of them, and then halves what is left every other time.
    """
    low, high = 0, most + 1
    looks: dict[int, float] = {}
    step = max(1, min(start, most))
    while high - low > 1:
        looks[step] = min(MOST_EXCESS, max(-MOST_EXCESS, excess(step)))
        low, high = (step, high) if looks[step] <= 0 else (low, step)
        if high not in looks:
            step = min(low + _leap(looks), most)
        elif low not in looks:
            step = max(high - _leap(looks), 1)
        else:
            share = 0.5 if len(looks) % 2 else looks[low] / (looks[low] - looks[high])
            step = min(high - 1, max(low + 1, low + round(share * (high - low))))
    return low


def _leap(looks: Mapping[int, float]) -> int:
    """Returns how far the step is beyond the last look, all looks being on one side of it."""
    if len(looks) == 1:
        return FIRST_LEAP
    (before, first), (last, second) = list(looks.items())[-2:]
    rise = abs(first - second) / abs(last - before)
    wanted = 1 + ceil(abs(second) / rise) if abs(second) < rise * MOST_LEAP else MOST_LEAP
    return min(wanted, 4 * abs(last - before))
