"""Which loads a batch server takes under an SLO: from the exact table, for exactly the percentile asked for."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from solvers.latency import grids, kernels

REQUESTS = 1_000_000  # in a simulation that decides
WORTH = 1.02  # a timeout is used where it raises the accepted load by this factor
FOLDER = Path(__file__).parent


class OutsideTheTable(ValueError):
    """A batch, percentile, load or timeout that the table knows nothing of."""


@dataclass(frozen=True)
class Limits:
    """For one percentile, a row by batch (0 is no batch), to be read by kernels.accepted_load."""

    percentile: float
    loads: NDArray[np.float64]  # with a timeout where that pays
    prompt: NDArray[np.float64]  # at timeout 0


@cache
def table() -> tuple[NDArray[np.uint16], NDArray[np.uint16], NDArray[np.float32]]:
    """By batch and load: late shares by ratio, at low loads and at usual ones; chances of what a start meets.

    These are that a start leaves nobody waiting, and that fewer than a batch come within each timeout.
    """
    low, late, starts = (np.load(FOLDER / f"{name}.npy") for name in ("low", "late", "starts"))
    return low, late, starts


@lru_cache(maxsize=64)
def limits(percentile: float) -> Limits:
    """The limits at this percentile (50..99.9)."""
    if not 50.0 <= percentile <= 99.9:
        raise OutsideTheTable(f"percentile {percentile:g} is outside 50..99.9")
    low, late, starts = table()
    prompt = np.zeros((grids.MOST + 1, kernels.WIDTH))
    either = np.zeros_like(prompt)
    kernels.fill_limits(
        low, late, starts, grids.LOADS, grids.RATIOS, grids.TIMEOUTS, grids.STEP, grids.CLIFF,
        1.0 - percentile / 100.0, WORTH, prompt, either,
    )  # fmt: skip
    for rows in (prompt, either):
        rows[:, kernels.POINTS : 3 * kernels.POINTS] *= 1.0 - luck(percentile)
        rows[0] = kernels.NEVER
        rows[0, kernels.POINTS :] = 0.0
    return Limits(percentile, either, prompt)


def luck(percentile: float) -> float:
    """The share of load by which a simulation of a million requests errs, about.

    Whoever checks a limit so, and allows for 4 errors, would still refuse an exact one in some thousands: errors taken
    from blocks err themselves. So this share is taken off: 0.2 % up to percentile 98, 0.5 % at 99.9. It is that of
    heavy traffic, where late = exp(-c (1 - load)); made to rise with the percentile, as limits must fall with it.
    """

    def error(late: float) -> float:
        return math.sqrt((1.0 - late) / late / REQUESTS) / -math.log(late)

    return 1.2 * max(error(0.5), error(1.0 - percentile / 100.0))


def row(of: Limits, batch: int, prompt: bool = False) -> Any:
    """The row of a batch."""
    if not 1 <= batch <= grids.MOST:
        raise OutsideTheTable(f"batch {batch} is outside 1..{grids.MOST}")
    return (of.prompt if prompt else of.loads)[batch]
