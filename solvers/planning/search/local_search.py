"""Searches around a plan: refills a few GPUs at a time, in cycles that begin by leaving something unserved.

What is missing costs little at first: the search drops the GPUs that are worth least and spreads what they carried over
what others have to spare. Then it costs more and more, until everything is served again, mostly by fewer GPUs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from solvers.planning.fleet.grids import Floats
from solvers.planning.search.tables import Tables
from solvers.planning.search.workshop import Workshop

STEPS_SM_PERCENT = (10, 10, 10, 4)  # of a search's turns: filling is quick at wide steps
TRIES = 200  # of a local search in a step of work, and
TRIES_PER_GPU = 0.2  # more for each GPU in use
FIRST_TRIES_PER_GPU = 0.5  # without gain, before the first cycle
CYCLE_TRIES_PER_GPU = 15  # while something may be missing, in the first cycle, and
CYCLE_GROWTH_FACTOR = 1.3  # times as many in each later one: short cycles find the first gains, long ones the last
FEWEST_TURNS = 4  # of a cycle
REPAIR_TRIES_PER_GPU = 10  # at the end of a cycle, without gain
PATIENCE_CYCLES = 10  # without gain before a search ends
LOW_FACTOR, HIGH_FACTOR = 2.0, 50.0  # times its price costs what is missing when a cycle begins, and when it ends
SHAKE_SHARE = 0.15  # of the prices, at most, from cycle to cycle
HEAT_SHARE = 0.02  # of a GPU's price


@dataclass
class LocalSearch:
    """Refills a few GPUs at a time while that lowers the cost.

    With a heat below nothing, a change is kept only if it gains about so much: where each change has its churn.
    """

    shop: Workshop
    seed: int
    heat_share: float = HEAT_SHARE
    tries_a_turn: int | None = None  # none: by the GPUs in use
    turns: int = 0

    def refills(self, rate: Floats, extra: Floats) -> Iterator[None]:
        """Searches at these prices without end, some tries a turn; everything stays served."""
        rate = _positive(rate)
        while True:
            self._turn(rate, extra)
            yield

    def cycles(self, rate: Floats, extra: Floats, patience: int = PATIENCE_CYCLES) -> Iterator[bool]:
        """Searches in cycles, some tries a turn, until several in a row gained nothing.

        Yields whether the board is meant to serve everything. The next cycle begins from the best board. A board that
        lacks something is searched no less long than usual.
        """
        shop, rate = self.shop, _positive(rate)
        yield from self.repair(rate, extra, FIRST_TRIES_PER_GPU)
        best, least = shop.kept_board(), shop.cost
        growth, vain = 1.0, 0
        while vain < patience or (vain < PATIENCE_CYCLES and shop.lacking.any()):
            yield from self.spread(rate, extra, growth)
            shop.fill(rate, shop.need)
            shop.restack()
            yield from self.repair(rate, extra, REPAIR_TRIES_PER_GPU)
            growth, vain = growth * CYCLE_GROWTH_FACTOR, vain + 1
            if shop.cost < least - 1e-9:
                best, least, vain = shop.kept_board(), shop.cost, 0
            else:
                shop.bring_back(best)

    def spread(self, rate: Floats, extra: Floats, growth: float) -> Iterator[bool]:
        """Refills while what is missing costs more and more, at prices of this cycle's own."""
        rng = np.random.default_rng([self.seed, self.turns])
        shaken = rate * np.exp(SHAKE_SHARE * rng.random() * rng.standard_normal(len(rate)))
        turns = max(int(growth * CYCLE_TRIES_PER_GPU * len(self.shop.used) / self._tries), FEWEST_TURNS)
        for lack in np.geomspace(LOW_FACTOR, HIGH_FACTOR, turns):
            self._turn(shaken, extra, float(lack))
            yield False

    def repair(self, rate: Floats, extra: Floats, tries_per_gpu: float) -> Iterator[bool]:
        """Refills with everything served until many tries in a row gain nothing."""
        least, since = np.inf, 0
        while since < tries_per_gpu * len(self.shop.used):
            tries = self._turn(rate, extra)
            yield True
            since = 0 if self.shop.cost < least - 1e-9 else since + tries
            least = min(least, self.shop.cost)

    @property
    def _tries(self) -> int:
        return self.tries_a_turn or TRIES + int(TRIES_PER_GPU * len(self.shop.used))

    def _turn(self, rate: Floats, extra: Floats, lack: float | None = None) -> int:
        """Makes the tries of one turn and returns how many."""
        shop, tries = self.shop, self._tries
        heat = self.heat_share * usual_price(shop.t)
        shop.look_at(STEPS_SM_PERCENT[self.turns % len(STEPS_SM_PERCENT)])
        shop.improve(rate, extra, self.seed * 1_000_003 + self.turns, tries, heat, lack)
        self.turns += 1
        return tries


def _positive(rate: Floats) -> Floats:
    """Returns the prices with the least instead of none."""
    return np.where(rate > 0, rate, rate[rate > 0].min(initial=np.inf))


def usual_price(t: Tables) -> float:
    """Returns what a GPU usually costs; where the objective weighs money by another factor, its watts count, too."""
    policy = t.problem.policy
    prices = [pool.price_per_hour for pool in t.pools]
    if policy.money_weight != 1.0:
        kwh = [t.site_types[pool.site].max_w / 1000 for pool in t.pools]
        prices = [price + drawn * policy.energy_price_per_kwh for price, drawn in zip(prices, kwh, strict=True)]
    return float(np.median(prices))
