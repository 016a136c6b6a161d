"""The cost of bursts to a batch server: the load it accepts, as a share of what it accepts from Poisson arrivals.

A service's arrivals are bursty by `variation`, the square of its rate's coefficient of variation. A random split leaves
it as it is, so that every instance of the service has the same: what an instance's index of dispersion has above 1 is
in proportion to its rate."""

from __future__ import annotations

import math
from functools import cache
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]

FOLDER = Path(__file__).parent
CHANGES_PER_SLO = 2.0  # from quiet to burst and back: a phase lasts an SLO in the mean
DIGIT = 1e-3  # of a logarithm
LEAST_PERCENTILE = 90.0  # below it bursts take as large a share as here: queues are too long to compute
SURE = 0.99  # of an interpolated load is accepted, so that none is beyond the exact chain

# The grid of the table; `lab/latency/bursts.py` fills it.
BATCHES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64, 128, 256)
WEIGHTS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.88, 0.94, 0.97)
RATIOS = (1.1, 1.25, 1.5, 1.75, 1.9, 1.95, 2.0, 2.25, 2.5, 3.0, 3.5, 4.0, 5.0, 6.0, 8.0, 11.0, 16.0, 23.0, 32.0, 64.0)
MISSING = (0.5, 0.2, 0.1, 0.05, 0.02, 0.01, 0.005, 0.002, 0.001)


def window_share(slos: float) -> float:
    """Returns the share of the rate's variation that the mean rate of a window of so many SLOs still has."""
    changes = CHANGES_PER_SLO * slos
    return 2.0 / changes * (1.0 - (1.0 - math.exp(-changes)) / changes)


def variation_of(burstiness: float, rate_per_second: float, slo_ms: float) -> float:
    """Returns the variation of a rate whose counts over windows of its SLO's length have this index of dispersion."""
    requests = rate_per_second * slo_ms / 1000.0
    return max(burstiness - 1.0, 0.0) / (requests * window_share(1.0))


def burstiness_of(variation: float, rate_per_second: float, slo_ms: float) -> float:
    """Returns the index of dispersion of counts over windows of the SLO's length."""
    return 1.0 + variation * window_share(1.0) * rate_per_second * slo_ms / 1000.0


def rest_of(variation: float) -> float:
    """Returns 1 - weight, where the rates of the two phases are 1 / (1 + weight) and 1 / (1 - weight) of the mean."""
    return 1.0 / (1.0 + variation) / (1.0 + math.sqrt(variation / (1.0 + variation)))


@cache
def table() -> Floats:
    """Loads logarithms of the shares of load, by batch, weight, ratio and share of late requests."""
    with np.load(FOLDER / "bursts.npz") as file:
        logs: Floats = -DIGIT * file["losses"].astype(np.float64)
    return logs


def find_accepted_shares(batch: int, variation: float, percentile: float, ratios: Floats) -> Floats:
    """Returns by SLO / exec the share of the load accepted from Poisson arrivals that is accepted with bursts.

    Beyond the heaviest weight of the table a burst's load is what decides, so that the share falls with it. Below two
    execs the shares jump from point to point, and the least around is taken.
    """
    rest = rest_of(variation)
    heavier = min(rest / (1.0 - WEIGHTS[-1]), 1.0)
    weights = -np.log1p(-np.array(WEIGHTS))
    logs = _interpolate(table(), np.log(BATCHES), math.log(batch))
    logs = _interpolate(logs, weights, min(-math.log(rest), float(weights[-1])))
    missing, at = -np.log(MISSING), -math.log(1.0 - max(percentile, LEAST_PERCENTILE) / 100.0)
    column = int(np.clip(np.searchsorted(missing, at) - 1, 0, len(missing) - 2))
    lowest = logs[:, column : column + 2].min(axis=1)
    place = np.clip(np.searchsorted(RATIOS, ratios) - 1, 0, len(RATIOS) - 2)
    found = np.interp(np.log(ratios), np.log(RATIOS), _interpolate(logs.T, missing, at))
    found = np.where(ratios < 2.0, np.minimum(lowest[place], lowest[place + 1]), found)
    shares: Floats = np.exp(found) * heavier * SURE
    return shares


def _interpolate(values: Floats, grid: Floats, at: float) -> Floats:
    """Returns the values at a place of the first axis, in a straight line between grid points."""
    cell = min(max(int(np.searchsorted(grid, at)) - 1, 0), len(grid) - 2)
    share = min(max((at - grid[cell]) / (grid[cell + 1] - grid[cell]), 0.0), 1.0)
    between: Floats = values[cell] * (1.0 - share) + values[cell + 1] * share
    return between
