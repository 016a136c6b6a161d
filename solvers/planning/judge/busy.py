"""The fraction of time an instance is busy, for the fleet's power and for energy."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from solvers.planning.judge.kernels import busy_at_timeout_0, count_served
from solvers.planning.judge.streams import REQUESTS, SKIPPED, stream

LOADS = 64  # steps of the table between load 0 and 1


def busy_fraction(batch: int, exec_ms: float, rate_per_second: float, timeout_ms: float) -> float:
    """Returns the fraction that a long simulation without the margin would find.

    At timeout 0 the server's chain is exact; read between points of a table by load, it is within 0.1 % of it. Any
    other timeout is simulated.
    """
    if not rate_per_second > 0 or not exec_ms > 0:
        return 0.0
    if timeout_ms > 0:
        units = stream(REQUESTS, 0)
        return count_served(units, batch, exec_ms / 1000, timeout_ms / 1000, rate_per_second, 1.0, SKIPPED, 30)[2]
    load = rate_per_second * exec_ms / 1000 / batch
    if load >= 1:
        return 1.0
    return float(np.interp(load, *_tabulate(batch)))


@lru_cache(maxsize=256)
def _tabulate(batch: int) -> tuple[list[float], list[float]]:
    """Tabulates busy fractions of a batch by load: denser towards 0, where a large batch's fraction rises steeply."""
    loads = [(step / LOADS) ** 2 for step in range(LOADS)]
    return [*loads, 1.0], [0.0, *(busy_at_timeout_0(batch, load * batch) for load in loads[1:]), 1.0]
