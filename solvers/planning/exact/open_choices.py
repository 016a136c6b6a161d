"""Keeps the choices of GPUs that may serve everything, the cheapest first."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from solvers.planning.exact.patterns import Patterns
from solvers.planning.exact.search import ENOUGH_SHARE
from solvers.planning.fleet.grids import Floats, Ints
from solvers.planning.search.bill import gpus_paid
from solvers.planning.search.tables import Tables

LEAST_SHARE = 1e-6  # of a cost that is known: GPUs that cost less by this cannot serve everything


@dataclass(frozen=True, slots=True)
class PricedChoice:
    """The number of GPUs of each pool that are paid, and prices at which their best patterns are worth least."""

    number: Ints
    cost: float
    prices: Floats
    worth: Floats  # of each pool's best pattern
    is_refuted: bool  # these GPUs cannot serve everything

    @property
    def slack(self) -> float:
        """Returns how much more than is needed all GPUs are worth with their best patterns."""
        return float(self.number @ self.worth) - ENOUGH_SHARE


class OpenChoices:
    """Every choice of how many GPUs of each pool to pay, but for those that are proved to serve too little."""

    def __init__(self, space: Patterns, sure: float, ceiling: float, least: float) -> None:
        """`sure` is what each plan pays for load that nothing can serve; no plan of interest costs `ceiling`."""
        self._space, self.ceiling = space, ceiling
        self._numbers, costs = _list_by_price(space.t)
        self._costs = sure + costs
        self._is_refuted = self._costs < least - LEAST_SHARE * max(1.0, least)
        self._priced: dict[int, PricedChoice] = {}
        self.rounds = 0  # of prices, so far

    @property
    def level(self) -> float:
        """Returns what the cheapest open choice costs, at most the ceiling."""
        costs = self._costs[~self._is_refuted]
        return min(float(costs[0]), self.ceiling) if len(costs) else self.ceiling

    @property
    def is_settled(self) -> bool:
        """Returns whether no choice below the ceiling is open."""
        return self.level >= self.ceiling * (1 - 1e-12)

    def __iter__(self) -> Iterator[int]:
        """Yields the open choices below the ceiling, as both change."""
        for at, cost in enumerate(self._costs.tolist()):
            if cost >= self.ceiling * (1 - 1e-12):
                return
            if not self._is_refuted[at]:
                yield at

    def priced(self, at: int) -> PricedChoice:
        """Returns a choice with its prices, which refute every choice that serves too little at them."""
        if at not in self._priced:
            number = self._numbers[at]
            v, worth, rounds = self._space.priced(number, ENOUGH_SHARE)
            self.rounds += rounds
            self._is_refuted |= self._numbers @ self._space.worths(v, range(len(worth))) < ENOUGH_SHARE - 1e-9
            self._priced[at] = PricedChoice(number, float(self._costs[at]), v, worth, bool(self._is_refuted[at]))
        return self._priced[at]

    def cost_of(self, used: Ints) -> float:
        """Returns the least cost of any choice with so many GPUs of each pool."""
        return float(self._costs[(self._numbers >= used).all(axis=1).argmax()])

    def refute(self, number: Ints) -> None:
        """Notes that so many GPUs, and so no fewer, cannot serve everything."""
        self._is_refuted |= (self._numbers <= number).all(axis=1)


def _list_by_price(t: Tables) -> tuple[Ints, Floats]:
    """Lists every choice of how many GPUs of each pool to pay, the cheapest first, with its price.

    GPUs billed by themselves are paid to run something, and so draw their idle watts; one of a paid node may be empty.
    """
    energy = t.problem.policy.energy_price_per_kwh
    idle_kw = [0.0 if p.node_sizes else t.problem.gpu_types[p.gpu_type].idle_w / 1000 for p in t.pools]
    prices = np.array([p.price_per_hour + kw * energy for p, kw in zip(t.pools, idle_kw, strict=True)])
    every = np.array(list(itertools.product(*[gpus_paid(pool).tolist() for pool in t.pools])), dtype=np.int64)
    cost = np.round(every @ prices, 12)
    order = np.lexsort((every.sum(axis=1), cost))
    return every[order], cost[order]
