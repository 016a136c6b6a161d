"""Finds the patterns of every pool when prices need them, and lists the choices of GPUs by price."""

from __future__ import annotations

import itertools
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from solvers.planning.exact.kernels import MORE, ExactOptions, exact_rates, find_patterns
from solvers.planning.exact.master import block_arrays, mix
from solvers.planning.exact.options import options
from solvers.planning.search.tables import Floats, Ints, Tables
from solvers.planning.step_prices import StepPrices, priced_steps
from solvers.planning.steps import RateSteps

Codes: TypeAlias = NDArray[np.int32]  # [pattern, slot]
PRICE_ROUNDS = 100
STEPS_A_PATTERN = 50  # of a search, for each pattern that it may find
CLOSE_SHARE = 1e-7  # of the prices' bound to the mix


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
        self.copies = RateSteps.of_rates(
            self.several,
            np.zeros(len(self.several)),
            np.ones(len(self.several)),
            least[self.several].astype(np.float64),
        )
        self.steps = 0.0  # of lists, so far
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

    def with_copies(self, rates: Floats) -> Floats:
        """Returns rates with the parts of instances asked for."""
        return np.hstack([rates, (rates[:, self.several] > 0.0) / self.copies.least])

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
        floor = np.array([least, np.inf])
        if not find_patterns(of, self.t.rate, v[:services], self.copy_prices(v), floor, True, codes, rates, 1 << 60):
            return least
        found = self.with_copies(rates)
        self.rates[site] = np.vstack([self.rates[site], found])
        return max(least, float(found[0] @ v) * (1 + MORE) + MORE)

    def priced(self, number: Ints, enough: float, begin: Floats) -> tuple[Floats, Floats, int]:
        """Finds prices at which the best patterns of so many GPUs are worth least, the worths, and the rounds done.

        Prices add up to 1. Below `enough` it stops: those GPUs cannot carry so much of every need.
        """
        used = np.flatnonzero(number)
        v, best, found = begin, np.inf, (begin, np.zeros(len(number)))
        done = 0
        for _ in range(PRICE_ROUNDS):
            worth = self.worths(v, used)
            done += 1
            bound = float(number @ worth)
            if bound < best:
                best, found = bound, (v, worth)
            if best < enough:
                break
            columns = [self.rates[self.site[pool]][:, self.served] for pool in used]
            prices, _, _, mixed, _ = mix(
                *block_arrays(columns), number[used].astype(np.float64), 0.0, np.ascontiguousarray(v[self.served])
            )
            if best - mixed <= CLOSE_SHARE * best:
                break
            v = np.zeros(len(v))
            v[self.served] = prices
        return *found, done

    def worth_least(self, pool: int, v: Floats, steps: StepPrices, least: float, limit: int) -> tuple[Codes, bool]:
        """Returns the patterns that have this worth by the table, up to the limit, and if these are all."""
        site = self.site[pool]
        if site not in self.options:
            return np.zeros((0, 1), dtype=np.int32), True
        of = self.options[site]
        codes, rates = _room(of, limit)  # rows that are never written take no memory
        most = float(limit * STEPS_A_PATTERN)
        floor = np.array([least, most])
        count = find_patterns(of, self.t.rate, v, steps, floor, False, codes, rates, limit)
        self.steps += most - float(floor[1])
        return codes[: min(count, limit)].copy(), bool(count <= limit and floor[1] >= 0)

    def exact(self, pool: int, codes: Codes) -> tuple[Floats, Floats]:
        """Returns the rates of patterns at the exact pressure of the neighbours, and (clock, watts)."""
        found = np.zeros((len(codes), len(self.t.services)))
        about = np.zeros((len(codes), 2))
        if len(codes):
            exact_rates(self.options[self.site[pool]], codes, found, about)
        return self.with_copies(np.minimum(found / self.t.rate, 1.0)), about


def choices(t: Tables, prices: Floats) -> tuple[Ints, Floats]:
    """Lists every choice of how many GPUs of each pool to use, the cheapest first, with its price."""
    every = np.array(list(itertools.product(*[range(len(pool.gpus) + 1) for pool in t.pools])), dtype=np.int64)
    cost = np.round(every @ prices, 12)
    order = np.lexsort((every.sum(axis=1), cost))
    return every[order], cost[order]


def _room(of: ExactOptions, count: int) -> tuple[Codes, Floats]:
    return np.empty((count, len(of.slot_start) - 1), dtype=np.int32), np.empty((count, of.services))
