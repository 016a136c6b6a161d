"""Makes columns of the patterns that the search for the bound meets: they are exact where fillings guess."""

from __future__ import annotations

import numpy as np

from solvers.planning import bound
from solvers.planning.search.fill import put
from solvers.planning.search.workshop import PatternColumn, Workshop

LEAST_PRICE_SHARE = 1e-6  # of the highest: a resident whose rate has no price stays in its pattern


def met_columns(shop: Workshop, work: int) -> list[PatternColumn]:
    """Returns a column for each pool that may have a pattern met in so much work; leaves the board empty.

    The bound leaves out the memory of batches, so each pattern is settled again within what its GPU has.
    """
    met: bound.MetPatterns = {}
    price = np.zeros(len(shop.t.services))
    for found in bound.rounds(shop.t, work, met=met):
        price = found.prices[: len(price)]
    shop.clear_all()
    if not met:
        return []
    price = np.maximum(price, LEAST_PRICE_SHARE * price.max())
    columns: list[PatternColumn] = []
    for pattern in met.values():
        site = int(np.searchsorted(shop.t.site_start, pattern.offers[0], side="right")) - 1
        if shop.settle(site, price, pattern.offers, pattern.sms):
            columns += (_bill(shop, pool) for pool in np.flatnonzero(shop.pools.site == site).tolist())
    return columns


def _bill(shop: Workshop, pool: int) -> PatternColumn:
    """Returns the settled pattern as a column of a pool, at what it costs on its first GPU."""
    gpu = int(shop.pools.start[pool])
    put(shop.w, shop.board, gpu, shop.pattern)
    column = shop.column(gpu)
    shop.empty(gpu)
    return column
