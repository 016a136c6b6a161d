"""Estimates what carrying a rate costs on some groups of nodes, so that services are divided into cheap parts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass, field

import numpy as np

from solvers.planning.fleet.grids import Floats
from solvers.planning.problem import Node, Problem
from solvers.planning.search.arrays import world
from solvers.planning.search.tables import Tables, tables
from solvers.planning.search.workshop import tabulated, usual_levels

STEP_SM_PERCENT = 10
LEVEL_SHARES = (0.5,)  # of the pressure of a full GPU


@dataclass(frozen=True)
class Estimate:
    """The rates of one instance of each service, by kind of node and SM%, and what the SM% cost."""

    t: Tables
    rates: Floats  # [offer, SM%]
    shares: Floats  # [offer, SM%] of a GPU
    sites: dict[str, int]  # of each node
    offers: dict[tuple[int, int], list[int]]  # by service and site
    carries: list[bool]  # offers that carry anything
    known: dict[tuple[int, float], float] = field(default_factory=dict)  # GPUs, by offer and rate

    def can_run(self, service: str, node: str) -> bool:
        """Returns whether the node could carry any of the service."""
        offers = self.offers.get((self.t.number_of[service], self.sites[node]), ())
        return any(self.carries[offer] for offer in offers)

    def cost(self, service: str, rate: float, nodes: Collection[Node]) -> float:
        """Returns what the shares of GPUs cost that carry this rate on these nodes; infinite if none can."""
        number, best = self.t.number_of[service], np.inf
        price: dict[int, float] = {}
        for node in nodes:
            site = self.sites[node.name]
            price[site] = min(price.get(site, np.inf), node.price_per_hour)
        for site in sorted(price):
            for offer in self.offers.get((number, site), ()):
                best = min(best, self._count_taken(offer, rate) * price[site])
        return best

    def most_rates(self, service: str) -> set[float]:
        """Returns the most that one instance of the service carries, for each kind of node and variant."""
        number = self.t.number_of[service]
        rates = (self.rates[offer].max() for key, of in self.offers.items() if key[0] == number for offer in of)
        return {float(rate) for rate in rates if rate > 0}

    def _count_taken(self, offer: int, rate: float) -> float:
        """Returns the GPUs, in parts, that carry this rate by an offer."""
        key = (offer, rate)
        if key not in self.known:
            each = self.rates[offer]
            copies = np.ceil(rate / np.maximum(each, 1e-12) - 1e-9)
            self.known[key] = float(np.where(each > 0, copies * self.shares[offer], np.inf).min())
        return self.known[key]


def estimate(problem: Problem, *, alone: bool = False) -> Estimate:
    """Tabulates the rates of all services on all kinds of nodes, beside usual neighbours or alone on whole GPUs."""
    t = tables(problem)
    w = world(t)
    w = w._replace(most_rate=np.full(len(t.services), np.inf))
    tabled = tabulated(t, w, STEP_SM_PERCENT, usual_levels(t, (0.0,) if alone else LEVEL_SHARES))
    rates = tabled.rates[:, 0, :]
    shares = np.broadcast_to(tabled.sms / 100.0, rates.shape).copy()
    if len(t.offer_service):
        shares[t.is_dedicated[t.offer_service] | alone] = 1.0
    sites = {name: pool.site for pool in t.pools for name, _ in pool.gpus}
    offers: dict[tuple[int, int], list[int]] = defaultdict(list)
    site_of = np.repeat(np.arange(len(t.site_types)), np.diff(t.site_start)).tolist()
    for offer, key in enumerate(zip(t.offer_service.tolist(), site_of, strict=True)):
        offers[key].append(offer)
    carries = [bool((row > 0).any()) for row in rates]
    return Estimate(t, rates, shares, sites, dict(offers), carries)
