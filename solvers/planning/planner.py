"""The core that makes plans: a first one at once, then better ones for as long as anybody waits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from solvers.planning import dive
from solvers.planning.limits import kept
from solvers.planning.prices import resource_prices
from solvers.planning.realise import Standing, prune, standing
from solvers.planning.recombine import MOST_COLUMNS, MOST_SERVICES, laid_out, recombine
from solvers.planning.tables import Floats, Tables
from solvers.planning.workshop import MOST_APART, Column, ColumnKey, Workshop, usual_levels, workshop

COARSE, FINE = 4, 2  # steps of SM%
LEVELS = (0.5, 0.9)  # of the pressure on a GPU full of its usual residents
FIRST_ROUNDS = 6  # at most, until everything is served
ROUNDS = 10
DIVES = 5  # before their patterns are combined
ATTEMPTS = 50  # to serve more, for one step of work
MOST_SQUEEZES = 60
PATIENCE = 600  # attempts without gain


@dataclass(frozen=True, slots=True)
class Draft:
    """A board worth keeping, what it costs, and the steps it took."""

    stands: Standing
    cost: float
    work: int
    method: str
    ends_the_beginning: bool = False  # everything is served, or the first few steps are done


def prepared(t: Tables) -> Workshop:
    """An empty fleet, and a coarse look at every offer."""
    return workshop(t, COARSE, usual_levels(t, LEVELS))


def drafts(shop: Workshop, seed: int) -> Iterator[Draft]:
    """Better and better plans, without end: the caller's patience is the budget."""
    t = shop.t
    best, work = np.inf, 0

    def draft(method: str) -> Draft | None:
        nonlocal best
        prune(shop)
        kept(shop)
        cost = shop.cost
        if not cost < best - 1e-9:
            return None
        best = cost
        return Draft(standing(shop), cost, work, method, not shop.need.any() or work >= FIRST_ROUNDS)

    if not t.pools:
        yield Draft(_NOBODY, shop.cost, 1, "there is no GPU", True)
        return
    rate, extra = resource_prices(t, shop.pools, shop.counts, shop.tabled)
    course = dive.Course(rate, extra)
    for prices in dive.generate(shop, course, FIRST_ROUNDS):
        if prices is None:
            work += 1
            found = draft("patterns at resource prices" if work == 1 else "patterns at the LP's prices")
            if found:
                yield found
                if found.ends_the_beginning:
                    break
    yield Draft(_NOBODY, np.inf, work, "", True)
    rng = np.random.default_rng(seed)
    for step in (COARSE, FINE):
        if step != COARSE:
            shop.refine(step, usual_levels(t, LEVELS))
        told = None
        for prices in dive.generate(shop, course, ROUNDS):
            if prices is None:
                work += 1
                found = draft("patterns at the LP's prices")
                if found:
                    yield found
            else:
                told = prices
        if told is None:
            return  # nothing that could be placed
        columns = dive.columns_of(course)
        weights = told._replace(weight=told.weight[told.weight > dive.NONE])
        rate, extra = course.rate.copy(), course.extra.copy()
        for _ in dive.dive(shop, course, weights, columns, dive.QUICK):
            work += 1
        found = draft("a dive from the LP")
        if found:
            yield found
        if shop.need.any():
            for _ in _squeezed(shop, course.rate, seed):
                work += 1
                yield Draft(_NOBODY, np.inf, work, "")
            found = draft("GPUs taken apart and filled anew")
            if found:
                yield found
    seen: dict[ColumnKey, Column] = {}
    least: tuple[float, list[Column]] = (np.inf, [])
    number = 0
    while True:
        number += 1
        course.rate = rate * np.exp(float(rng.choice([0.02, 0.06])) * rng.standard_normal(len(rate)))
        course.extra = extra.copy()
        depth = dive.Depth(
            rounds=int(rng.choice([3, 5])),
            up=float(rng.choice([0.03, 0.08, 0.15])),
            useful=float(rng.choice([0.5, 0.7, 0.85])),
        )
        for _ in dive.dive(shop, course, weights, columns, depth):
            work += 1
            yield Draft(_NOBODY, np.inf, work, "")
        found = draft("the best of several dives")
        if found:
            yield found
        if len(t.services) > MOST_SERVICES or shop.need.any():
            continue
        here = shop.columns(shop.used)
        seen.update((column.key, column) for column in here)
        least = min(least, (shop.cost, here), key=lambda known: known[0])
        if number % DIVES == 0 and len(seen) <= MOST_COLUMNS:
            work += DIVES
            better = recombine(shop, list(seen.values()), least[1])
            if better and laid_out(shop, better):
                found = draft("patterns of several dives, chosen by branch and bound")
                least = (shop.cost, better)
                if found:
                    yield found


def _squeezed(shop: Workshop, prices: Floats, seed: int) -> Iterator[None]:
    """Where the fleet is short: take a few GPUs apart and fill them anew, as long as that serves more."""
    apart, need, used = np.zeros(MOST_APART, dtype=np.int64), np.zeros(len(prices)), shop.used
    true = shop.t.unserved_price
    stalled, weights = 0, prices
    for number in range(MOST_SQUEEZES * ATTEMPTS):
        # Now what is missed counts for what it is: its price beside what its rate is worth elsewhere.
        weights = np.where(shop.need > 0, true, prices) if number % ATTEMPTS == 0 else weights
        saved = shop.improve(weights, seed * 1_000_003 + number, 2 + number % 5, used, apart, need)
        stalled = 0 if saved > 0 else stalled + 1
        if number % ATTEMPTS == ATTEMPTS - 1:
            used = shop.used
            yield
            if stalled > PATIENCE or not shop.need.any():
                return


_NONE = np.zeros(0, dtype=np.int64)
_NOBODY = Standing(_NONE, _NONE, _NONE, _NONE, np.zeros(0), np.zeros(0))
