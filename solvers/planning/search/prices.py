"""Computes first prices of rates: the least cost on the GPUs that a service may use, when these are scarce."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from solvers.planning.fleet.grids import Floats
from solvers.planning.search.dual import SUM, raise_worths
from solvers.planning.search.tables import Tables

if TYPE_CHECKING:
    from solvers.planning.search.fill import Pools, Tabled

STEPS = 300


def resource_prices(t: Tables, pools: Pools, counts: Floats, tabled: Tabled) -> tuple[Floats, Floats]:
    """Returns prices of rates, and the worth of one more GPU of each pool."""
    share = _shares(t, pools, tabled)  # [service, pool]
    price = pools.price + 100.0 * pools.sm_price
    return resource_dual(share, price, counts, t.rate, t.unserved_price, STEPS)


def resource_dual(
    share: Floats, price: Floats, counts: Floats, need: Floats, most: Floats, steps: int
) -> tuple[Floats, Floats]:
    """Returns prices of rates up to `most`, and the worth of one more GPU of each pool or market.

    The resource LP: a service needs, for each request a second on a pool, the least share of a GPU (SMs or memory,
    whichever is more) over SM%; pools have so many GPUs. Its dual has one variable a pool, raised here step by step
    where demand passes supply.
    """
    worths = np.zeros((3, len(price)))
    if not len(price):
        return most.copy(), worths[SUM]
    scale = float(price.max(initial=1e-9))
    ready = [np.ascontiguousarray(array, float) for array in (share, price, np.maximum(counts, 1e-9), need, most)]
    raise_worths(ready[0], ready[1], ready[2], ready[3], ready[4], scale, steps, worths)
    extra = worths[SUM] / (steps - steps // 2)
    cheapest: Floats = (share * (price + extra)).min(axis=1)
    return np.minimum(cheapest, most), extra


def _shares(t: Tables, pools: Pools, tabled: Tabled) -> Floats:
    """Returns the least share of a GPU for a request a second, by service and pool; huge if none can serve it."""
    middle = tabled.rates.shape[1] // 2
    rates = tabled.rates[:, middle, :]
    memory = np.min(t.memory_gib, axis=1)[t.offer_profile]
    sites = np.repeat(np.arange(len(t.site_types)), np.diff(t.site_start))
    gib = np.array([kind.memory_gib for kind in t.site_types])
    whole = np.where(t.is_dedicated[t.offer_service], 1.0, (memory / gib[sites]))
    taken = np.maximum(tabled.sms[None, :] / 100.0, whole[:, None])
    with np.errstate(divide="ignore"):
        best = np.where(rates > 0, taken / np.maximum(rates, 1e-300), np.inf).min(axis=1)
    share = np.full((len(t.services), len(t.pools)), np.inf)
    for pool, site in enumerate(pools.site):
        part = slice(int(t.site_start[site]), int(t.site_start[site + 1]))
        np.minimum.at(share[:, pool], t.offer_service[part], best[part])
    return np.where(np.isfinite(share), share, 1e30)
