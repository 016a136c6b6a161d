"""Finds first prices, at which GPUs are not over-used."""

from __future__ import annotations

import numpy as np

from solvers.planning.bound.fleet import BoundFleet
from solvers.planning.fleet.grids import SM, Floats
from solvers.planning.search.prices import resource_dual

DUAL_STEPS = 200
FREE_SHARE = 0.1  # of what a GPU is worth: where GPUs are free, the dual begins there


def first_prices(f: BoundFleet) -> Floats:
    """Returns prices from a dual with a variable a market, raised where demand exceeds supply."""
    count = np.array([f.count[m.pools].sum() for m in f.markets])
    price = np.array(
        [m.share_price + float(f.fixed[m.pools] @ f.count[m.pools]) / float(f.count[m.pools].sum()) for m in f.markets]
    )
    price = np.where(price > 0.0, price, [FREE_SHARE * m.scale for m in f.markets])
    found, _ = resource_dual(shares(f), price, count, f.need, f.most_price, DUAL_STEPS)
    return found


def shares(f: BoundFleet) -> Floats:
    """Returns the least part of a GPU, by SMs or memory, for a request a second: [service, market]."""
    share = np.full((len(f.need), len(f.markets)), 1e30)
    sm = np.arange(SM) / 100.0
    for m in f.markets:
        if m.first == m.last:
            continue
        middle = m.classes[len(m.classes) // 2].at_lo.astype(np.float64)
        taken = np.maximum(sm[None, :], (m.memory_gib / m.room_gib)[m.profile][:, None])
        least = np.full(middle.shape, np.inf)
        np.divide(taken, middle, out=least, where=middle > 1e-12)
        least = np.minimum(least.min(axis=1), np.where(m.alone > 0.0, 1.0 / np.maximum(m.alone, 1e-300), np.inf))
        np.minimum.at(share[:, m.number], m.service, np.minimum(least, 1e30))
    return share
