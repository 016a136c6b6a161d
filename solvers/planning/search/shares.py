"""Lets instances of one service carry unequal parts of its rate, as far as its minInstances allow.

Each of the n instances asked for must carry half of an even share. So of two, one may carry three quarters of the rate.
The loops know how much one instance may carry at most, but not this rule, so it is checked for each draft. Instances
that are too unequal are cut down to even shares. A service of which that happens often may have no larger ones for the
rest of a search. In a fleet that runs, shares stay even: a large instance needs as much free room to be handed over.
"""

from __future__ import annotations

import numpy as np

from solvers.planning.fleet.grids import Floats, Ints
from solvers.planning.search.workshop import Workshop

MOST_CUTS = 3  # of a service, before each of its instances may carry an even share at most
ROUNDING_SHARE = 1e-9


class InstanceShares:
    """The most that one instance of each service may carry, and how often its instances were too unequal."""

    def __init__(self, shop: Workshop) -> None:
        least = shop.t.min_instances
        self.shop = shop
        self.even: Floats = shop.t.rate / least
        self.widest: Floats = self.even * (least + 1) / 2  # n - 1 others carry half of an even share each
        state = shop.t.problem.state
        runs = state is not None and bool(state.running)
        self.differ = not runs and bool((least > 1).any())
        self.cuts: Ints = np.zeros(len(least), dtype=np.int64)

    def widen(self) -> None:
        """Lets each instance carry as much as the rule allows where no more of them run than minInstances asks for."""
        if self.differ:
            self.cuts[:] = 0
            self.shop.w.most_rate[:] = self.widest
            self.shop.by_step.clear()

    def cut(self) -> None:
        """Cuts instances that are too unequal down to even shares, so that the board says what it truly serves."""
        if not self.differ:
            return
        t, b = self.shop.t, self.shop.board
        gpu, slot = np.nonzero(np.arange(b.offer.shape[1])[None, :] < b.count[:, None])
        owner, caps = t.offer_service[b.offer[gpu, slot]], b.cap[gpu, slot]
        largest = np.zeros(len(self.even))
        np.maximum.at(largest, owner, caps)
        for service in np.flatnonzero(largest > self.even * (1 + ROUNDING_SHARE)).tolist():
            own = np.flatnonzero(owner == service)
            carried = min(float(b.cover[service]), float(t.rate[service]))
            if _served(caps[own], int(t.min_instances[service])) < carried * (1 - ROUNDING_SHARE):
                b.cap[gpu[own], slot[own]] = np.minimum(caps[own], self.even[service])
                b.cover[service] = b.cap[gpu[own], slot[own]].sum()
                self._count(service)

    def lost(self) -> float:
        """Returns what it costs to leave out whole services of which too few instances run, beyond what they lack."""
        if not self.differ:
            return 0.0
        t, b = self.shop.t, self.shop.board
        running = np.arange(b.offer.shape[1])[None, :] < b.count[:, None]
        count = np.bincount(t.offer_service[b.offer[running]], minlength=len(self.even))
        is_lost = (count > 0) & (count < t.min_instances)
        missing = np.where(self.shop.need > 0.0, np.maximum(self.shop.need, 1.0), 0.0)
        return float((t.unserved_price * (np.maximum(t.rate, 1.0) - missing))[is_lost].sum())

    def _count(self, service: int) -> None:
        """Notes a cut; after too many no instance of the service may carry more than an even share."""
        shop, most = self.shop, float(self.even[service])
        self.cuts[service] += 1
        if self.cuts[service] == MOST_CUTS:
            shop.w.most_rate[service] = most
            offers = np.flatnonzero(shop.t.offer_service == service)
            for tabled in shop.by_step.values():
                tabled.rates[offers] = np.minimum(tabled.rates[offers], most)
                tabled.top[service] = min(tabled.top[service], most)


def _served(caps: Floats, least: int) -> float:
    """Returns how much these instances may carry when each of the `least` largest carries half of an even share.

    Too few carry nothing: the whole service is left out.
    """
    if len(caps) < least:
        return 0.0
    return 2 * len(caps) * float(np.sort(caps)[-least])
