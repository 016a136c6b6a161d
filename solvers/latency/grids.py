"""Where the attainment table has its points, and how a share of late requests is written in 16 bits."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

MOST = 256  # batches are 1..256

# Loads: by factors where plans rarely go, by 3.4 % where small batches live, by a hundredth and less towards 1.
LOADS = np.concatenate(
    [
        np.geomspace(1e-5, 0.05, 21)[:-1],
        np.geomspace(0.05, 0.5, 69)[:-1],
        np.linspace(0.5, 0.95, 34)[:-1],
        [0.95, 0.96, 0.97, 0.98, 0.985, 0.99, 0.995],
    ]
)

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

TIMEOUTS = np.array([0.0, 0.25, 0.5, 0.75, 1.0])  # in execs

LEAST = 1e-6  # a smaller share is written as this one
STEP = -np.log(LEAST) / 65535


def encode(shares: NDArray[np.float64]) -> NDArray[np.uint16]:
    """Shares on a logarithmic scale of 16 bits, never smaller than they are."""
    codes = np.floor(-np.log(np.clip(shares, LEAST, 1.0)) / STEP + 1e-9)
    return np.asarray(codes, dtype=np.uint16)
