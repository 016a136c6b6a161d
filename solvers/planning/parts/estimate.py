"""Estimates what carrying a rate costs on some groups of nodes, so that services are divided into cheap parts."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from solvers.planning.problem import Node, Problem
from solvers.planning.search.arrays import world
from solvers.planning.search.tables import Floats, Tables, tables
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

    def can_run(self, service: str, node: str) -> bool:
        """Tells if the node could carry any of the service."""
        return bool((self._offers(service, {self.sites[node]}) > 0).any())

    def cost(self, service: str, rate: float, nodes: Collection[Node]) -> float:
        """Returns what the shares of GPUs cost that carry this rate on these nodes; infinite if none can."""
        number, best = self.t.number_of[service], np.inf
        price: dict[int, float] = {}
        for node in nodes:
            site = self.sites[node.name]
            price[site] = min(price.get(site, np.inf), node.price_per_hour)
        for site in sorted(price):
            for offer in range(int(self.t.site_start[site]), int(self.t.site_start[site + 1])):
                if self.t.offer_service[offer] == number:
                    each = self.rates[offer]
                    copies = np.ceil(rate / np.maximum(each, 1e-12) - 1e-9)
                    taken = np.where(each > 0, copies * self.shares[offer], np.inf)
                    best = min(best, float(taken.min() * price[site]))
        return best

    def _offers(self, service: str, sites: set[int]) -> Floats:
        number = self.t.number_of[service]
        found = [
            self.rates[offer]
            for site in sites
            for offer in range(int(self.t.site_start[site]), int(self.t.site_start[site + 1]))
            if self.t.offer_service[offer] == number
        ]
        return np.concatenate(found) if found else np.zeros(0)


def estimate(problem: Problem) -> Estimate:
    """Tabulates the rates of all services on all kinds of nodes."""
    t = tables(problem)
    w = world(t)
    w = w._replace(most_rate=np.full(len(t.services), np.inf))
    tabled = tabulated(t, w, STEP_SM_PERCENT, usual_levels(t, LEVEL_SHARES))
    rates = tabled.rates[:, 0, :]
    shares = np.broadcast_to(tabled.sms / 100.0, rates.shape).copy()
    if len(t.offer_service):
        shares[t.is_dedicated[t.offer_service]] = 1.0
    sites = {name: pool.site for pool in t.pools for name, _ in pool.gpus}
    return Estimate(t, rates, shares, sites)
