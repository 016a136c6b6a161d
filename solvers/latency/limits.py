"""The loads that a batch server accepts within an SLO, from the exact table, for any percentile."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache, lru_cache
from math import inf
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from solvers.latency import bursts, grids, kernels

REQUESTS = 1_000_000  # in a simulation that checks a limit
WORTH = 1.02  # a timeout is used where it raises the accepted load by this factor
FOLDER = Path(__file__).parent
LOCK = Lock()


class OutsideTheTable(ValueError):
    """A batch, percentile, load or timeout that the table does not cover."""


@dataclass(frozen=True)
class LatencyTable:
    """The limits at one percentile, one row a batch (row 0 is unused), read by kernels.accepted_load."""

    percentile: float
    loads: NDArray[np.float64]  # with a timeout where it pays
    prompt: NDArray[np.float64]  # at timeout 0
    made: set[int]  # batches whose rows are filled; the others accept nothing


@cache
def table() -> tuple[NDArray[np.uint16], NDArray[np.uint16], NDArray[np.float32]]:
    """Loads the table, by batch and load: late shares by ratio at low and at usual loads, and chances at a start.

    These are the chance that a start leaves no request waiting, and the chances that fewer requests than a batch come
    within each timeout.
    """
    low, late, starts = (np.load(FOLDER / f"{name}.npy") for name in ("low", "late", "starts"))
    return low, late, starts


def limits(percentile: float, batches: Iterable[int] | None = None, variation: float = 0.0) -> LatencyTable:
    """Returns the limits at this percentile (50..99.9), for these batches at least, or for all.

    With a `variation` above 0 they are those of bursty arrivals, at timeout 0 alone.
    """
    if variation > 0.0:
        return _bursty_limits(percentile, batches, variation)
    rows = _rows(percentile)
    if len(rows.made) > grids.MOST:
        return rows
    with LOCK:
        new = [batch for batch in (range(grids.MOST + 1) if batches is None else batches) if batch not in rows.made]
        if new:
            low, late, starts = table()
            kernels.fill_limits(
                low, late, starts, grids.LOADS, grids.RATIOS, grids.TIMEOUTS, grids.STEP, grids.CLIFF,
                1.0 - percentile / 100.0, WORTH, np.array(new), 1.0 - luck(percentile), rows.prompt, rows.loads,
            )  # fmt: skip
            rows.made.update(new)
    return rows


def _bursty_limits(percentile: float, batches: Iterable[int] | None, variation: float) -> LatencyTable:
    plain = limits(percentile, batches)
    rows = _bursty_rows(percentile, variation)
    with LOCK:
        for batch in plain.made - rows.made if batches is None else set(batches) - rows.made:
            rows.prompt[batch] = _bursty_row(plain.prompt[batch], batch, variation, percentile)
            rows.made.add(batch)
    return rows


def _bursty_row(plain: NDArray[np.float64], batch: int, variation: float, percentile: float) -> NDArray[np.float64]:
    """Returns a row of limits in which bursts take their share of each load.

    Between two ratios the smaller of their shares holds, and no ratio accepts more than a longer one.
    """
    points = kernels.POINTS
    found = plain.copy()
    ratios, slopes, loads = (found[part * points : (part + 1) * points] for part in range(3))
    shares = bursts.find_accepted_shares(batch, variation, percentile, np.clip(ratios, 1.0, kernels.LONGEST))
    shares[:-1] = np.minimum(shares[:-1], shares[1:])
    slopes *= shares
    loads *= shares
    loads[:] = np.minimum.accumulate(loads[::-1])[::-1]
    return found


@lru_cache(maxsize=1024)
def _bursty_rows(percentile: float, variation: float) -> LatencyTable:
    rows = np.zeros((grids.MOST + 1, kernels.WIDTH))
    rows[0, : kernels.POINTS] = kernels.NEVER
    return LatencyTable(percentile, rows, rows, {0})


@lru_cache(maxsize=64)
def _rows(percentile: float) -> LatencyTable:
    if not 50.0 <= percentile <= 99.9:
        raise OutsideTheTable(f"percentile {percentile:g} is outside 50..99.9")
    loads, prompt = np.zeros((2, grids.MOST + 1, kernels.WIDTH))
    loads[0, : kernels.POINTS] = prompt[0, : kernels.POINTS] = kernels.NEVER
    return LatencyTable(percentile, loads, prompt, {0})


def luck(percentile: float) -> float:
    """Returns the share of load by which a simulation of a million requests errs, roughly.

    A check of a limit by such a simulation, at 4 standard errors, would still reject an exact limit in some thousands,
    because errors estimated from blocks have errors themselves. So this share is subtracted: 0.2 % up to percentile
    98, 0.5 % at 99.9. It is the share in heavy traffic, where late = exp(-c (1 - load)), made to rise with the
    percentile because limits must fall with it.
    """

    def error(late: float) -> float:
        return math.sqrt((1.0 - late) / late / REQUESTS) / -math.log(late)

    return 1.2 * max(error(0.5), error(1.0 - percentile / 100.0))


def row(percentile: float, batch: int, prompt: bool = False, variation: float = 0.0) -> Any:
    """Returns the row of limits of a batch."""
    if not 1 <= batch <= grids.MOST:
        raise OutsideTheTable(f"batch {batch} is outside 1..{grids.MOST}")
    rows = _bursty_rows(percentile, variation) if variation > 0.0 else _rows(percentile)
    if batch not in rows.made:
        rows = limits(percentile, [batch], variation)
    return (rows.prompt if prompt else rows.loads)[batch]


def limit_loads(rows: NDArray[np.float64], share: float, most: float) -> NDArray[np.float64]:
    """Returns rows that accept this share of the load at every ratio, and never more than `most`."""
    if share == 1.0 and most == inf:
        return rows
    found = rows.copy()
    slopes, loads = found[..., kernels.POINTS : 2 * kernels.POINTS], found[..., 2 * kernels.POINTS : 3 * kernels.POINTS]
    slopes *= share
    loads *= share
    slopes[loads >= most] = 0.0
    np.minimum(loads, most, out=loads)
    return found
