"""The table by which our online policy looks ahead: how much of a GPU's free part is expected to stay free."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from lab.baselines.online.workload import GPU_MILLI


@lru_cache(maxsize=64)
def expected_waste(pieces: tuple[tuple[int, float], ...], draws: int) -> NDArray[np.float64]:
    """Returns, by free milli, the milli expected to stay free in the end.

    The model packer sees the next `draws` requests of the declared mix, takes the one that leaves the least waste, and
    repeats; when none fits, the rest is wasted. With one draw it takes requests as they come; with many it packs
    perfectly. So W(f) = E[min over the draws of W(f - request), f for a misfit]."""
    table = np.zeros(GPU_MILLI + 1)
    if not pieces:
        return np.arange(GPU_MILLI + 1, dtype=np.float64)
    sizes = np.array([size for size, _ in pieces], dtype=np.int64)
    chance = np.array([count for _, count in pieces])
    chance = chance / chance.sum()
    for free in range(1, GPU_MILLI + 1):
        after = np.where(sizes <= free, table[np.maximum(free - sizes, 0)], float(free))
        order = np.argsort(after, kind="stable")
        # P(the best is the i-th) = P(all draws are at least the i-th) - P(all are beyond it)
        beyond = np.maximum(1.0 - np.concatenate([[0.0], np.cumsum(chance[order])]), 0.0) ** draws
        table[free] = float(np.sum(after[order] * (beyond[:-1] - beyond[1:])))
    return table
