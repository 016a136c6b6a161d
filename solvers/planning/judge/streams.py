"""Poisson streams of arrivals for simulations: seeded, made once, shared by all instances with the same seed."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

REQUESTS = 60_000
SKIPPED = 600  # the first 1 %: the server starts empty
BLOCKS = 30


@lru_cache(maxsize=40)
def stream(requests: int, seed: int) -> NDArray[np.float64]:
    """Returns arrival times of a request a second on average, determined by seed and length."""
    gaps = np.random.default_rng([requests, seed]).standard_exponential(requests)
    return np.cumsum(gaps)
