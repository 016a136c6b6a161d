"""Where the attainment table has its points, and how a share of late requests is written in 16 bits."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

MOST = 256  # batches are 1..256

# Loads: by 3.4 % where small batches live, by a hundredth and less towards 1.
USUAL_LOADS = np.concatenate(
    [
        np.geomspace(0.0425, 0.5, 73)[:-1],
        np.linspace(0.5, 0.95, 34)[:-1],
        [0.95, 0.96, 0.97, 0.98, 0.985, 0.99, 0.995],
    ]
)
# Where SLOs of less than 2 execs end: the ratio needed is about 2 - late * exp(-n) / n with n = load * batch requests
# an exec, so that the steps are shorter where n of the large batches is not small.
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
CLIFF = int(np.searchsorted(RATIOS, 2.0))  # below it late shares are stored less the 2 - ratio that no load avoids
LOW_RATIOS = RATIOS[: CLIFF + 1]  # low loads need no more than 2 at any percentile

TIMEOUTS = np.array([0.25, 0.5, 0.75, 1.0])  # in execs

LEAST = 1e-8  # a smaller share is written as this one
STEP = -np.log(LEAST) / 65535


def encode(shares: NDArray[np.float64]) -> NDArray[np.uint16]:
    """Shares on a logarithmic scale of 16 bits, never smaller than they are."""
    codes = np.floor(-np.log(np.clip(shares, LEAST, 1.0)) / STEP + 1e-9)
    return np.asarray(codes, dtype=np.uint16)
