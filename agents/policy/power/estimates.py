"""What a clock or a batch would do to power and latency, each estimated to the safe side.

Power is idle + k x clock ** e. What e is differs by model and voltage, between 1 and 3: going down it is taken as
the least, so that the step is large enough; going up as the most, so that it is small enough.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

UP_EXPONENT = 3.0
IDLE_SHARE = 0.5  # of the cap, where what the GPU draws idle is not known: more than it is, for steps that suffice
IDLE_SURELY = 0.8  # of what is told; less is the safe side here
# Twice the batch: 2 ** 0.3 = 1.23 times the watts at most, and as much throughput.
BATCH_EXPONENT = 0.3
BUSIEST = 0.95  # beyond, queues grow whatever the batch is


def clock_that_fits(clock_mhz: float, watts: float, target_w: float, idle_w: float, growth: float) -> float:
    """Going down: the clock at which the GPU draws at most `target_w`, if power falls no faster than the clock.

    `growth`: what above idle may be multiplied by at the lower clock, as what computed for part of the time may then
    compute for all of it, in larger batches.
    """
    above_idle = growth * (watts - idle_w)
    if above_idle <= 0:
        return clock_mhz
    return min(clock_mhz, clock_mhz * max(0.0, target_w - idle_w) / above_idle)


def clock_with_room(clock_mhz: float, watts: float, target_w: float, idle_w: float) -> float:
    """Going up: the clock at which it draws at most `target_w`, if what is above idle rises with its cube."""
    still = IDLE_SURELY * idle_w
    if watts <= still:
        return float("inf")
    return clock_mhz * math.pow(max(0.0, target_w - still) / (watts - still), 1 / UP_EXPONENT)


def slower_by(clock_mhz: float, lower_mhz: float) -> float:
    """How much longer a request takes at the lower clock: its computing in proportion, its waiting more than that."""
    return (clock_mhz / lower_mhz) ** 2


def at_most(clocks_mhz: Sequence[int], mhz: float, otherwise: int) -> int:
    """The highest of the clocks that is not above."""
    return max((clock for clock in clocks_mhz if clock <= mhz), default=otherwise)


def at_least(clocks_mhz: Sequence[int], mhz: float, otherwise: int) -> int:
    """The lowest of the clocks that is not below."""
    return min((clock for clock in clocks_mhz if clock >= mhz), default=otherwise)
