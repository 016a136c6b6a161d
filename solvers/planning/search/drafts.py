"""The core that makes plans: a first one at once, then better ones for as long as anybody waits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from solvers.planning.search import dive
from solvers.planning.search.limits import enforce_limits
from solvers.planning.search.prices import resource_prices
from solvers.planning.search.realise import PlacedInstances, leave_out, placed_instances, prune
from solvers.planning.search.tables import Floats, Tables
from solvers.planning.search.workshop import Workshop, usual_levels, workshop

COARSE, FINE = 4, 2  # steps of SM%
STEPS = (10, 4, 10, 2)  # of a walk's turns: profiles bend at round numbers, and there a filling is quick
LEVELS = (0.5, 0.9)  # of the pressure on a GPU full of its usual residents
FIRST_ROUNDS = 3  # of the LP, for a plan at once
ROUNDS = 8
TRIES = 200  # of a walk for one step of work, and so many
TRIES_A_GPU = 0.2  # more for each GPU in use
PATIENCE = 20_000  # tries without gain, and so many
PATIENCE_A_GPU = 50  # more for each GPU in use
HEAT = 0.02  # of a GPU's price


@dataclass(frozen=True, slots=True)
class SearchDraft:
    """A board worth keeping, what it costs, and the steps it took."""

    stands: PlacedInstances
    cost: float
    work: int
    method: str
    ends_the_beginning: bool = False  # everything is served, or the first dive is done


def prepare(t: Tables) -> Workshop:
    """An empty fleet, and a coarse look at every offer."""
    return workshop(t, COARSE, usual_levels(t, LEVELS))


def drafts(shop: Workshop, seed: int) -> Iterator[SearchDraft]:
    """Better and better plans, without end: the caller's patience is the budget."""
    t = shop.t
    best, work = np.inf, 0

    def draft(method: str) -> SearchDraft | None:
        nonlocal best
        prune(shop)
        leave_out(shop)
        enforce_limits(shop)
        cost = shop.cost
        if not cost < best - 1e-9:
            return None
        best = cost
        return SearchDraft(placed_instances(shop), cost, work, method, not shop.need.any())

    if not t.pools:
        yield SearchDraft(_NOBODY, shop.cost, 1, "there is no GPU", True)
        return
    rate, extra = resource_prices(t, shop.pools, shop.counts, shop.tabled)
    course = dive.Dive(rate, extra)
    rng = np.random.default_rng(seed)
    walking = _Walk(shop, seed)
    for step, rounds in ((COARSE, FIRST_ROUNDS), (COARSE, ROUNDS), (FINE, ROUNDS)):
        shop.look_at(step)
        told = None
        for prices in dive.generate(shop, course, rounds):
            if prices is None:
                work += 1
                found = draft("patterns at resource prices" if work == 1 else "patterns at the LP's prices")
                if found:
                    yield found
            else:
                told = prices
        if told is None:
            yield SearchDraft(_NOBODY, np.inf, work, "", True)
            return  # nothing that could be placed
        columns = dive.columns_of(course)
        weights = told._replace(weight=told.weight[told.weight > dive.NONE])
        rate, extra = course.rate.copy(), course.extra.copy()
        for _ in dive.dive(shop, course, weights, columns, dive.SHALLOW):
            work += 1
        found = draft("a dive from the LP")
        if found:
            yield found
        yield SearchDraft(_NOBODY, np.inf, work, "", True)
        if rounds == FIRST_ROUNDS:
            continue  # better prices are worth more than a walk at these
        for _ in walking.on(rate, extra):
            work += 1
            yield draft("a walk from there") or SearchDraft(_NOBODY, np.inf, work, "")
    while True:
        shop.look_at(FINE)
        course.rate = rate * np.exp(float(rng.choice([0.02, 0.06])) * rng.standard_normal(len(rate)))
        course.extra = extra.copy()
        depth = dive.DiveLimits(
            rounds=int(rng.choice([3, 5])),
            up=float(rng.choice([0.03, 0.08, 0.15])),
            useful=float(rng.choice([0.5, 0.7, 0.85])),
        )
        for _ in dive.dive(shop, course, weights, columns, depth):
            work += 1
            yield SearchDraft(_NOBODY, np.inf, work, "")
        for _ in walking.on(rate, extra):
            work += 1
            yield draft("the best of several walks") or SearchDraft(_NOBODY, np.inf, work, "")


@dataclass
class _Walk:
    """From board to board, a few GPUs at a time, while that pays."""

    shop: Workshop
    seed: int
    turns: int = 0

    def on(self, rate: Floats, extra: Floats) -> Iterator[None]:
        """Walk at these prices; a turn of so many tries at a time, until there is no gain for long."""
        shop, t = self.shop, self.shop.t
        heat = HEAT * float(np.median([pool.price_per_hour for pool in t.pools]))
        rate = np.where(rate > 0, rate, rate[rate > 0].min(initial=np.inf))
        tries = TRIES + int(TRIES_A_GPU * len(shop.used))
        least, since = shop.cost, 0
        while since < PATIENCE + PATIENCE_A_GPU * len(shop.used):
            shop.look_at(STEPS[self.turns % len(STEPS)])
            shop.improve(rate, extra, self.seed * 1_000_003 + self.turns, tries, heat)
            self.turns += 1
            yield
            since = 0 if shop.cost < least - 1e-9 else since + tries
            least = min(least, shop.cost)


_NONE = np.zeros(0, dtype=np.int64)
_NOBODY = PlacedInstances(_NONE, _NONE, _NONE, _NONE, np.zeros(0), np.zeros(0))
