"""Compiled: raises the worth of scarce GPUs step by step where demand passes supply."""

from __future__ import annotations

from solvers.compiled import njit
from solvers.planning.fleet.grids import Floats
from solvers.planning.search.arrays import F1, F2, F8, I8

USED, EXTRA, SUM = range(3)


@njit((F2, F1, F1, F1, F1, F8, I8, F2))
def raise_worths(
    share: Floats, price: Floats, counts: Floats, need: Floats, most: Floats, scale: float, steps: int, into: Floats
) -> None:
    """Adds up the worth of one more GPU of each pool over the later half of the steps, in into[SUM]; begins at zero."""
    pools = price.shape[0]
    for step in range(steps):
        for pool in range(pools):
            into[USED, pool] = 0.0
        for service in range(need.shape[0]):
            at, least = 0, share[service, 0] * (price[0] + into[EXTRA, 0])
            for pool in range(1, pools):
                cost = share[service, pool] * (price[pool] + into[EXTRA, pool])
                if cost < least:
                    at, least = pool, cost
            if least < most[service]:
                into[USED, at] += need[service] * share[service, at]
        for pool in range(pools):
            excess = min(max((into[USED, pool] - counts[pool]) / counts[pool], -1.0), 1.0)
            into[EXTRA, pool] = max(0.0, into[EXTRA, pool] + 0.3 * scale / (1.0 + step / 12.0) * excess)
            if step >= steps // 2:
                into[SUM, pool] += into[EXTRA, pool]
