"""Estimates the effect of a clock or a batch on power and latency, each on the safe side.

Power is idle + k x clock ** e. The exponent depends on model and voltage and lies between 1 and 3: going down the least
is used, so that the step is large enough; going up the most, so that it is small enough.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

UP_EXPONENT = 3.0
IDLE_SHARE = 0.5  # of the cap, if idle watts are unknown: more than they are, so that steps suffice
CERTAIN_IDLE_SHARE = 0.8  # of the known idle watts; less is the safe side here
# Twice the batch: 2 ** 0.3 = 1.23 times the watts at most, and as much throughput.
BATCH_EXPONENT = 0.3
BUSIEST_SHARE = 0.95  # beyond it, queues grow at any batch


def clock_that_fits(clock_mhz: float, watts: float, target_w: float, idle_w: float, growth: float) -> float:
    """Returns, going down, the clock at which the GPU draws at most `target_w` if power falls no faster than the clock.

    `growth`: by how much power above idle may grow at the lower clock, as instances that computed part of the time may
    then compute all of it, in larger batches.
    """
    above_idle = growth * (watts - idle_w)
    if above_idle <= 0:
        return clock_mhz
    return min(clock_mhz, clock_mhz * max(0.0, target_w - idle_w) / above_idle)


def clock_with_room(clock_mhz: float, watts: float, target_w: float, idle_w: float) -> float:
    """Returns, going up, the clock at which the GPU draws at most `target_w` if power above idle rises cubically."""
    still = CERTAIN_IDLE_SHARE * idle_w
    if watts <= still:
        return float("inf")
    return clock_mhz * math.pow(max(0.0, target_w - still) / (watts - still), 1 / UP_EXPONENT)


def slower_by(clock_mhz: float, lower_mhz: float) -> float:
    """Returns how much longer a request takes at the lower clock: computing in proportion, waiting more than that."""
    return (clock_mhz / lower_mhz) ** 2


def find_highest_clock(clocks_mhz: Sequence[int], mhz: float, otherwise: int) -> int:
    """Returns the highest clock that is not above `mhz`."""
    return max((clock for clock in clocks_mhz if clock <= mhz), default=otherwise)


def find_lowest_clock(clocks_mhz: Sequence[int], mhz: float, otherwise: int) -> int:
    """Returns the lowest clock that is not below `mhz`."""
    return min((clock for clock in clocks_mhz if clock >= mhz), default=otherwise)
