"""Makes the attainment table of the batch server, which ships in solvers/latency/.

It is exact arithmetic: no seed, the same files each time.

Usage: nice -n 10 python -m lab.latency.attainment      (two minutes on one core)
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np
from scipy.special import gammaincc

from lab.latency import chain
from solvers.latency import grids

FINE = 16  # each unit of SLO / exec is looked at in so many parts
FILES = Path(grids.__file__).parent


def late_shares(solved: chain.Chain) -> np.ndarray:
    """Late shares at the grid's ratios, raised until the interpolation between them is nowhere below the exact ones.

    Between points the logarithm is interpolated, below 2 the share itself, less 2 - ratio.
    """
    fine = np.unique(np.concatenate([np.arange(FINE, 24 * FINE + 1) / FINE, np.linspace(24, 128, 2 * 104 + 1)]))
    exact = solved.late(fine)
    below = fine < 2.0
    avoidable = np.clip(np.where(below, exact - (2.0 - fine), exact), grids.LEAST, 1.0)
    height = np.where(below | (fine == 2.0), avoidable, np.nan)
    steep = np.log(avoidable)
    at = np.searchsorted(fine, grids.RATIOS)
    plain, logs = height[at], steep[at]
    lift_plain, lift_logs = np.zeros(len(at)), np.zeros(len(at))
    for cell in range(len(at) - 1):
        inside = slice(at[cell] + 1, at[cell + 1])
        share = (fine[inside] - fine[at[cell]]) / (fine[at[cell + 1]] - fine[at[cell]])
        ends, lift, curve = (plain, lift_plain, height) if cell < grids.CLIFF else (logs, lift_logs, steep)
        short = float(np.max(curve[inside] - (ends[cell] * (1 - share) + ends[cell + 1] * share), initial=0.0))
        short *= 1.2  # for what lies between the points looked at
        lift[cell], lift[cell + 1] = max(lift[cell], short), max(lift[cell + 1], short)
    raised: np.ndarray = np.exp(np.minimum(logs + lift_logs, 0.0))
    low = slice(0, grids.CLIFF + 1)
    raised[low] = np.maximum(plain[low] + lift_plain[low], np.where(grids.RATIOS[low] == 2.0, raised[low], 0.0))
    return raised


def row(batch: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The table of one batch: late shares by load and ratio, low loads and usual ones; chances of starts by load."""
    shares = np.empty((len(grids.LOADS), len(grids.RATIOS)))
    starts = np.empty((len(grids.LOADS), 1 + len(grids.TIMEOUTS)), dtype=np.float32)
    for index, load in enumerate(grids.LOADS):
        solved = chain.solve(batch, float(load))
        shares[index] = late_shares(solved)
        starts[index, 0] = solved.none_left
        starts[index, 1:] = gammaincc(batch, load * batch * grids.TIMEOUTS)
    # Shares rise with load; what the lifts and the last digits say against it does not count.
    codes = grids.encode(np.maximum.accumulate(shares, axis=0))
    lows = len(grids.LOW_LOADS)
    return codes[:lows, : len(grids.LOW_RATIOS)], codes[lows:], starts


def main() -> None:
    began = time.monotonic()
    rows = []
    for batch in range(1, grids.MOST + 1):
        rows.append(row(batch))
        if batch % 16 == 0:
            print(f"batch {batch} of {grids.MOST}, {time.monotonic() - began:.0f} s", file=sys.stderr)
    for name, part in (("low", 0), ("late", 1), ("starts", 2)):
        partial = FILES / f"{name}.partial.npy"
        np.save(partial, np.array([made[part] for made in rows]))
        partial.replace(FILES / f"{name}.npy")  # a reader meanwhile gets the whole old file


if __name__ == "__main__":
    main()
