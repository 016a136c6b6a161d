"""The grid points of the attainment table, and the 16-bit encoding of a share of late requests."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

MOST = 256  # batches are 1..256

# Loads rise by 3.4 % where small batches work, and by a hundredth or less towards 1.
USUAL_LOADS = np.concatenate(
    [
        np.geomspace(0.0425, 0.5, 73)[:-1],
        np.linspace(0.5, 0.95, 34)[:-1],
        [0.95, 0.96, 0.97, 0.98, 0.985, 0.99, 0.995],
    ]
)
# At low loads an SLO of less than 2 execs is possible: the ratio needed is about 2 - late * exp(-n) / n, where
# n = load * batch is the requests an exec. So the steps are shorter where n of the large batches is not small.
LOW_LOADS = np.concatenate(
    [
        np.geomspace(1e-5, 8e-5, 5)[:-1],
        np.geomspace(8e-5, 2e-3, 31)[:-1],
        np.geomspace(2e-3, 8e-3, 18)[:-1],
        np.geomspace(8e-3, 2e-2, 15)[:-1],
        np.geomspace(2e-2, 0.0425, 16)[:-1],
    ]
)
LOADS = np.concatenate([LOW_LOADS, USUAL_LOADS])

# SLO / exec: the cliff at 2 and the milder ones at whole numbers are points of the grid.
RATIOS = np.concatenate(
    [
        np.arange(8, 24) / 8,
        np.arange(12, 24) / 4,
        np.arange(12, 24) / 2,
        np.arange(12, 24),
        [24, 28, 32, 40, 48, 56, 64, 80, 96, 112, 128],
    ]
).astype(np.float64)
CLIFF = int(np.searchsorted(RATIOS, 2.0))  # below it, late shares are stored without the 2 - ratio late at any load
LOW_RATIOS = RATIOS[: CLIFF + 1]  # at any percentile, low loads need a ratio of at most 2

TIMEOUTS = np.array([0.25, 0.5, 0.75, 1.0])  # in execs

LEAST = 1e-8  # a smaller share is stored as this value
STEP = -np.log(LEAST) / 65535


def encode(shares: NDArray[np.float64]) -> NDArray[np.uint16]:
    """Encodes shares on a logarithmic scale of 16 bits, never smaller than they are."""
    codes = np.floor(-np.log(np.clip(shares, LEAST, 1.0)) / STEP + 1e-9)
    return np.asarray(codes, dtype=np.uint16)
