"""Poisson streams of arrivals for simulations: seeded, made once, shared by all instances with the same seed."""

from __future__ import annotations

from functools import lru_cache
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from solvers.planning.judge.kernels import spread_by_bursts

REQUESTS = 60_000
SKIPPED = 600  # the first 1 %: the server starts empty
BLOCKS = 30


@lru_cache(maxsize=40)
def stream(requests: int, seed: int) -> NDArray[np.float64]:
    """Returns arrival times of a request a second on average, determined by seed and length."""
    gaps = np.random.default_rng([requests, seed]).standard_exponential(requests)
    return np.cumsum(gaps)


def bursty_stream(requests: int, seed: int, variation: float, rate: float, slo_s: float) -> NDArray[np.float64]:
    """Returns arrival times in units of a mean gap, where the rate goes up and down between two values.

    Each value brings half of the requests, their variance is `variation` times the mean's square, and a phase lasts an
    SLO in the mean over both. Seconds are these times over `rate`.
    """
    away = sqrt(variation / (1 + variation))
    factors = np.array([1 / (1 + away), (1 + variation) * (1 + away)])  # the second is 1 / (1 - away)
    lasting = factors * slo_s * rate  # the rarer phase is the shorter one
    mean_units = np.array([lasting[1], lasting[0]])
    return spread_by_bursts(stream(requests, seed), factors, mean_units, seed)
