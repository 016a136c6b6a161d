"""Which loads a batch server takes under an SLO: from the exact table, for exactly the percentile asked for."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from solvers.latency import grids, kernels

REQUESTS = 1_000_000  # in a simulation that decides
WORTH = 1.02  # a timeout is used where it raises the accepted load by this factor
FOLDER = Path(__file__).parent
LOCK = Lock()


class OutsideTheTable(ValueError):
    """A batch, percentile, load or timeout that the table knows nothing of."""


@dataclass(frozen=True)
class LatencyTable:
    """For one percentile, a row by batch (0 is no batch), to be read by kernels.accepted_load."""

    percentile: float
    loads: NDArray[np.float64]  # with a timeout where that pays
    prompt: NDArray[np.float64]  # at timeout 0
    made: set[int]  # batches whose rows are filled in; the others accept nothing


@cache
def table() -> tuple[NDArray[np.uint16], NDArray[np.uint16], NDArray[np.float32]]:
    """By batch and load: late shares by ratio, at low loads and at usual ones; chances of what a start meets.

    These are that a start leaves nobody waiting, and that fewer than a batch come within each timeout.
    """
    low, late, starts = (np.load(FOLDER / f"{name}.npy") for name in ("low", "late", "starts"))
    return low, late, starts


def limits(percentile: float, batches: Iterable[int] | None = None) -> LatencyTable:
    """The limits at this percentile (50..99.9), of these batches at least; without any, of all."""
    of = _rows(percentile)
    if len(of.made) > grids.MOST:
        return of
    with LOCK:
        new = [batch for batch in (range(grids.MOST + 1) if batches is None else batches) if batch not in of.made]
        if new:
            low, late, starts = table()
            kernels.fill_limits(
                low, late, starts, grids.LOADS, grids.RATIOS, grids.TIMEOUTS, grids.STEP, grids.CLIFF,
                1.0 - percentile / 100.0, WORTH, np.array(new), 1.0 - luck(percentile), of.prompt, of.loads,
            )  # fmt: skip
            of.made.update(new)
    return of


@lru_cache(maxsize=64)
def _rows(percentile: float) -> LatencyTable:
    if not 50.0 <= percentile <= 99.9:
        raise OutsideTheTable(f"percentile {percentile:g} is outside 50..99.9")
    loads, prompt = np.zeros((2, grids.MOST + 1, kernels.WIDTH))
    loads[0, : kernels.POINTS] = prompt[0, : kernels.POINTS] = kernels.NEVER
    return LatencyTable(percentile, loads, prompt, {0})


def luck(percentile: float) -> float:
    """The share of load by which a simulation of a million requests errs, about.

    Whoever checks a limit so, and allows for 4 errors, would still refuse an exact one in some thousands: errors taken
    from blocks err themselves. So this share is taken off: 0.2 % up to percentile 98, 0.5 % at 99.9. It is that of
    heavy traffic, where late = exp(-c (1 - load)); made to rise with the percentile, as limits must fall with it.
    """

    def error(late: float) -> float:
        return math.sqrt((1.0 - late) / late / REQUESTS) / -math.log(late)

    return 1.2 * max(error(0.5), error(1.0 - percentile / 100.0))


def row(percentile: float, batch: int, prompt: bool = False) -> Any:
    """The row of a batch."""
    if not 1 <= batch <= grids.MOST:
        raise OutsideTheTable(f"batch {batch} is outside 1..{grids.MOST}")
    of = limits(percentile, [batch])
    return (of.prompt if prompt else of.loads)[batch]
