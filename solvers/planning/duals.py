"""Carries a bound over to other rates: the prices that proved it also prove one there, without another search."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil

import numpy as np
from numpy.typing import NDArray

from solvers.planning.steps import RateSteps, Worths, worths

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

# The rates of a valid plan add up to a service's rate within 1e-5 of it, and less than 1e-5 unserved counts as 0.
NEED_SHARE = 1 - 2e-5
SAFETY_SHARE = 1e-9  # relative, for the rounding of sums of float64; each term is rounded upward


@dataclass(frozen=True, slots=True)
class Attainable:
    """The costs that plans can have: `sums` has bit k if GPUs can cost k units; 0: any cost."""

    sums: int
    unit: float
    otherwise: float  # leaving out a service that could be served costs at least this

    def above(self, bound: float, sure: float) -> float:
        """Returns the least possible cost at or above the bound; `sure` is for services that nothing can serve."""
        if not self.sums:
            return bound
        least = ceil((bound - sure) / self.unit - 1e-6)
        rest = self.sums >> max(least, 0)
        dearer = max(bound, sure + self.otherwise * (1 - 1e-9))
        if not rest:
            return dearer
        units = max(least, 0) + (rest & -rest).bit_length() - 1
        return max(bound, min(dearer, (sure + units * self.unit) * (1 - 1e-12)))


@dataclass(frozen=True, slots=True)
class Duals:
    """The prices of a search for a bound, and what proves a bound by them while nothing but rates changes."""

    services: tuple[str, ...]
    need: Floats  # the rates that the prices were found for
    price: Floats  # of a request a second
    unserved_price: Floats  # of a request a second, and of less than one
    is_capped: Flags  # services of which a GPU could carry all: a higher rate may be worth more to that GPU
    can_be_served: Flags  # services that some GPU could carry
    worth: Floats  # of a GPU of each pool, at these prices
    fixed: Floats  # the cost of using it
    count: Floats
    scales: bool  # the worth of a GPU is in proportion to the prices
    attainable: Attainable
    steps: RateSteps  # of rates rounded, and the price of each
    step_price: Floats
    found: float  # the bound of the search: higher rates cannot lower it

    def bound(self, rates: Mapping[str, float]) -> float:
        """Returns a bound on the cost at these rates of all the services.

        At these prices no GPU is worth more than before, because it can carry no more of a rate that fell, and the
        price of a rate that rose falls in proportion, if a GPU could carry all of it. Its steps become longer then.
        """
        need = np.array([rates[name] for name in self.services], dtype=np.float64) * NEED_SHARE
        factor = np.where((need > self.need) & self.is_capped, need / self.need, 1.0)
        found = worths(self.price / factor, need, self.unserved_price, self.steps.scaled(factor), self.step_price)
        best = float(self._weigh_multiples(found).max())
        none = self.unserved_price * np.maximum(need, 1.0)
        bound = self.attainable.above(best, float(none[~self.can_be_served].sum()) * (1 - SAFETY_SHARE))
        return max(bound, self.found) if bool((need >= self.need).all()) else bound

    def _factors(self) -> Floats:
        """Returns the multiples of the prices at which a kind of GPU is worth its cost, and 1."""
        earning = self.worth > 0.0
        if not self.scales:
            return np.ones(1)
        return np.unique(np.append(self.fixed[earning] / self.worth[earning], 1.0))

    def _weigh_multiples(self, found: Worths) -> Floats:
        """Returns the worth of the rates less the worth of GPUs beyond their cost, for each multiple of the prices."""
        factors = self._factors()
        served = found.least(factors, len(self.need)).sum(axis=1)
        worth = self.worth * factors[:, None]
        beyond = np.maximum(worth - self.fixed, 0.0) @ self.count
        bounds: Floats = served - beyond - SAFETY_SHARE * (served + (worth + self.fixed) @ self.count)
        return bounds
