"""Bounds the cost of every choice of how many GPUs of each pool are paid, on fleets with few enough to list all.

Where nodes are billed whole, a choice pays all GPUs of some nodes; those that it leaves empty earn nothing.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from solvers.planning.bound.attainable import AttainableHere
from solvers.planning.bound.fleet import BoundFleet, market_of, worth_of_rates
from solvers.planning.duals import SAFETY_SHARE
from solvers.planning.fleet.grids import Floats
from solvers.planning.search.bill import gpus_paid

MOST_CHOICES = 50_000
MOST_NODE_CHOICES = 200_000  # where nodes are billed whole: prices alone prove less there, so longer lists pay
REFUTED_SHARE = 1e-9  # of a cost: a choice is refuted if it would have to cost more by at least this


class GpuCounts:
    """Every choice of GPUs, with the most that any prices looked at prove for it."""

    def __init__(self, f: BoundFleet, sums: AttainableHere) -> None:
        self.fleet, self.sums = f, sums
        self.of = market_of(f)
        self.is_whole = np.array([bool(pool.node_sizes) for pool in f.tables.pools], dtype=np.bool_)
        price = np.array([pool.price_per_hour for pool in f.tables.pools])
        self.price = np.where(self.is_whole, price, f.fixed)  # an empty GPU of a node that is paid draws nothing
        paid = [gpus_paid(pool) for pool in f.tables.pools] if self.applies(f) else [np.zeros(0)]
        self.choices: Floats = np.stack(np.meshgrid(*paid, indexing="ij")).reshape(len(paid), -1).T.astype(np.float64)
        self.cost: Floats = self.choices @ self.price + sums.sure if len(self.choices) else np.zeros(0)
        self.proved = np.full(len(self.choices), -np.inf)

    @staticmethod
    def applies(f: BoundFleet) -> bool:
        """Returns whether whole GPUs are paid for, and their choices are few."""
        pools = f.tables.pools
        is_whole = f.tables.problem.policy.pricing == "gpu" and bool((f.fixed > 0.0).all())
        most = MOST_NODE_CHOICES if any(pool.node_sizes for pool in pools) else MOST_CHOICES
        return is_whole and len(pools) > 0 and float(np.prod([float(len(gpus_paid(p))) for p in pools])) <= most

    def take(self, prices: Floats, worth: Floats) -> None:
        """Takes what prices prove for each choice."""
        if len(self.choices):
            np.maximum(self.proved, self.at(prices, worth, self.choices), out=self.proved)

    def at(self, prices: Floats, worth: Floats, choices: Floats) -> Floats:
        """Returns what prices prove for some choices: the worth of the rates less that of the GPUs, and their cost."""
        f = self.fleet
        served, of_gpus = float(worth_of_rates(f, prices).sum()), worth[self.of]
        safety = SAFETY_SHARE * (abs(served) + float((np.abs(of_gpus) + f.fixed) @ f.count))
        of_gpus = np.where(self.is_whole, np.maximum(of_gpus - (f.fixed - self.price), 0.0), of_gpus)
        found: Floats = served - safety + choices @ (self.price - of_gpus)
        return found

    @property
    def is_refuted(self) -> NDArray[np.bool_]:
        """Tells of each choice if it cannot serve all that can be served."""
        return self.proved > self.cost * (1 + REFUTED_SHARE) + REFUTED_SHARE

    def least(self) -> tuple[float, Floats | None]:
        """Returns the least cost that any choice may have, and the cheapest choice that is not refuted."""
        if not len(self.choices):
            return -np.inf, None
        refuted = self.is_refuted
        dearer = self.cost + self.sums.costs.otherwise * (1 - SAFETY_SHARE) if self.sums.costs.sums else self.proved
        costs = np.where(refuted, np.maximum(self.proved, dearer), self.cost) * (1 - 1e-12)
        place = int(np.argmin(costs))
        return float(costs[place]), None if refuted[place] else self.choices[place]
