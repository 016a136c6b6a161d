"""Finds the patterns of every pool when prices need them."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from solvers.planning.exact.kernels import MORE, ExactOptions, exact_rates, find_patterns
from solvers.planning.exact.master import SATURATED_SHARE, block_arrays, mix
from solvers.planning.exact.options import options
from solvers.planning.fleet.grids import Floats, Ints
from solvers.planning.search.tables import Tables
from solvers.planning.step_prices import StepPrices, priced_steps
from solvers.planning.steps import LEAST_LARGE, RateSteps

Codes: TypeAlias = NDArray[np.int32]  # [pattern, slot]
Flags: TypeAlias = NDArray[np.bool_]
PRICE_ROUNDS = 100
BEST_STEPS = 3e7  # of a search for the best pattern: a few tenths of a second
STEPS_A_PATTERN = 300  # of a search, for each pattern that it may find
CLOSE_SHARE = 1e-7  # of the prices' bound to the mix
LEAST_PRICE = 1e-6  # of all prices
FULL_SHARE = 1e-4  # of a need: a pattern that carries less by this does not carry most


class Patterns:
    """The patterns found so far, by site; rates are in parts of the need, 1 at most.

    After the services come those that ask for several instances once more: each GPU with one carries its part of them.
    """

    def __init__(self, t: Tables) -> None:
        self.t = t
        self.site = [pool.site for pool in t.pools]
        self.options: dict[int, ExactOptions] = {}
        self.rates: dict[int, Floats] = {}
        least = np.where(t.survives, np.maximum(t.min_instances, 2), t.min_instances)  # on two nodes, so on two GPUs
        self.several = np.flatnonzero(least > 1)
        is_two = (t.min_instances[self.several] == 2) & ~t.is_dedicated[self.several]
        self.copies = RateSteps.of_rates(
            self.several,
            np.where(is_two, -1.0, 0.0),  # two are large; of more, every instance counts
            np.ones(len(self.several)),
            least[self.several].astype(np.float64),
        )
        self.steps = 0.0  # of lists, so far
        self.most_steps = np.inf
        self.needs = len(t.services) + len(self.several)
        for site in sorted(set(self.site)):
            of = options(t, site)
            self.rates[site] = np.zeros((1, self.needs))  # an empty GPU
            if of is not None:
                self.options[site] = of
        every = np.eye(len(t.services), self.needs)
        most = np.array([self.worths(v, range(len(t.pools))).max() for v in every])
        can = most > 2 * MORE
        self.served = np.concatenate([can, can[self.several]])

    def copy_prices(self, v: Floats) -> StepPrices:
        """Returns what an instance of a service that asks for several is worth at prices v."""
        services = len(self.t.services)
        return priced_steps(self.copies, v[services:] / self.copies.least, services)

    def add_copies(self, rates: Floats) -> Floats:
        """Returns rates with the parts of instances asked for."""
        own = rates[:, self.several]
        large = np.minimum(1.0, LEAST_LARGE + 4.0 * (1.0 - LEAST_LARGE) * own)
        filled = np.where(self.copies.length < 0.0, large, 1.0) * (own > 0.0)
        return np.hstack([rates, filled / self.copies.least])

    def worths(self, v: Floats, pools: range | Ints) -> Floats:
        """Returns the worth of each of these pools' best pattern at prices v, 0 for others; keeps the patterns."""
        best = np.zeros(len(self.site))
        known: dict[int, float] = {}
        for pool in pools:
            site = self.site[pool]
            if site not in known:
                known[site] = self._best(site, v)
            best[pool] = known[site]
        return best

    def _best(self, site: int, v: Floats) -> float:
        known = float((self.rates[site] @ v).max())
        if site not in self.options:
            return known
        of = self.options[site]
        codes, rates = _room(of, 1)
        least = known * (1 + MORE) + MORE
        services = len(self.t.services)
        floor = np.array([least, BEST_STEPS, 0.0])
        if find_patterns(of, self.t.rate, v[:services], self.copy_prices(v), floor, True, codes, rates, 1 << 60, 1):
            found = self.add_copies(rates)
            self.rates[site] = np.vstack([self.rates[site], found])
            least = max(least, float(found[0] @ v) * (1 + MORE) + MORE)
        self.steps += BEST_STEPS - float(floor[1])
        return least if floor[1] >= 0 else max(least, float(floor[2]))  # or none was overlooked

    def priced(self, number: Ints, enough: float) -> tuple[Floats, Floats, int]:
        """Finds prices at which the best patterns of so many GPUs are worth least, the worths, and the rounds done.

        Prices add up to 1. Below `enough` it stops: those GPUs cannot carry so much of every need.
        Where they can carry just what is needed of some needs, prices of these alone are as low as any, and tell
        nothing of the other needs. So these get a price that only patterns with all of them repay, beside the others'.
        """
        tight, done = np.zeros(self.needs, dtype=np.bool_), 0
        while True:
            v, worth, most, rounds = self._priced(number, enough, tight)
            done += rounds
            found = tight | (v > LEAST_PRICE)
            is_tight = enough <= most <= 1 + SATURATED_SHARE * (1 + tight.sum())
            if not is_tight or not (self.served & ~found).any():
                whole = 1.0 + tight.sum()
                return (v + tight) / whole, worth / whole, done
            tight = found

    def _priced(self, number: Ints, enough: float, tight: Flags) -> tuple[Floats, Floats, float, int]:
        """Finds such prices of the needs that are not tight.

        Returns the prices, the worths at these and 1 for each tight need, the most of the other needs that they prove,
        and the rounds.
        """
        spare, used = self.served & ~tight, np.flatnonzero(number)
        v, most, done = spare / spare.sum(), np.inf, 0
        found = (v, np.zeros(len(number)))
        close = CLOSE_SHARE + tight.sum() * 2 * (1 - enough)
        while done < PRICE_ROUNDS:
            known = sum(map(len, self.rates.values()))
            worth = self.worths(v + tight, used)
            done += 1
            bound = float(number @ worth) - tight.sum() * enough
            if bound < most:
                most, found = bound, (v, worth)
            if most < enough or (done > 1 and known == sum(map(len, self.rates.values()))):
                break
            columns = [_fullest(self.rates[self.site[pool]], tight)[:, spare] for pool in used]
            prices, _, _, mixed, _ = mix(
                *block_arrays(columns), number[used].astype(np.float64), 0.0, np.ascontiguousarray(v[spare])
            )
            if most - mixed <= close * most:
                break
            v = np.zeros(len(v))
            v[spare] = prices
        return *found, most, done

    def worth_least(
        self, pool: int, v: Floats, steps: StepPrices, least: float, limit: int, sm_step: int
    ) -> tuple[Codes, bool]:
        """Returns the patterns of multiples of so many SM% that have this worth by the table, and if these are all.

        They are not all if there are more than the limit, or if it takes too many steps to look for so many.
        """
        site = self.site[pool]
        if site not in self.options:
            return np.zeros((0, 1), dtype=np.int32), True
        of = self.options[site]
        codes, rates = _room(of, limit)  # rows that are never written take no memory
        most = max(0.0, min(float(limit * STEPS_A_PATTERN), self.most_steps - self.steps))
        floor = np.array([least, most, 0.0])
        count = find_patterns(of, self.t.rate, v, steps, floor, False, codes, rates, limit, sm_step)
        self.steps += most - float(floor[1])
        return codes[: min(count, limit)].copy(), bool(count <= limit and floor[1] >= 0)

    def exact(self, pool: int, codes: Codes) -> tuple[Floats, Floats]:
        """Returns the rates of patterns at the exact pressure of the neighbours, and (clock, watts)."""
        found = np.zeros((len(codes), len(self.t.services)))
        about = np.zeros((len(codes), 2))
        if (codes >= 0).any():
            exact_rates(self.options[self.site[pool]], codes, found, about)
        return self.add_copies(np.minimum(found / self.t.rate, 1.0)), about


def _fullest(rates: Floats, tight: Flags) -> Floats:
    """Returns the patterns that carry most of the tight needs."""
    if not tight.any():
        return rates
    carried: Floats = rates[:, tight].sum(axis=1)
    fullest: Floats = rates[carried >= carried.max() - FULL_SHARE]
    return fullest


def _room(of: ExactOptions, count: int) -> tuple[Codes, Floats]:
    return np.empty((count, len(of.slot_start) - 1), dtype=np.int32), np.empty((count, of.services))
