"""Makes drafts of plans: a first one at once, then better ones for as long as the caller asks for more."""

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

COARSE, FINE = 4, 2  # step widths in SM%
STEPS = (10, 4, 10, 2)  # of a search's turns, in SM%: profiles bend at round numbers, and filling there is quick
LEVELS = (0.5, 0.9)  # shares of the pressure on a GPU full of its usual residents
FIRST_ROUNDS = 3  # of the LP, for a quick first plan
ROUNDS = 8
TRIES = 200  # of a local search in a step of work, and
TRIES_PER_GPU = 0.2  # more for each GPU in use
PATIENCE_TRIES = 20_000  # without gain before a search ends, and
PATIENCE_TRIES_PER_GPU = 50  # more for each GPU in use
HEAT_SHARE = 0.02  # of a GPU's price


@dataclass(frozen=True, slots=True)
class SearchDraft:
    """A board worth keeping, its cost, and the steps it took."""

    stands: PlacedInstances
    cost: float
    work: int
    method: str
    ends_the_beginning: bool = False  # everything is served, or the first dive is done


def prepare(t: Tables) -> Workshop:
    """Returns an empty board with the offers at coarse steps."""
    return workshop(t, COARSE, usual_levels(t, LEVELS))


def drafts(shop: Workshop, seed: int) -> Iterator[SearchDraft]:
    """Yields better and better drafts without end; the caller decides when to stop."""
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
        yield SearchDraft(_EMPTY_BOARD, shop.cost, 1, "no GPUs", True)
        return
    rate, extra = resource_prices(t, shop.pools, shop.counts, shop.tabled)
    course = dive.Dive(rate, extra)
    rng = np.random.default_rng(seed)
    local_search = _LocalSearch(shop, seed)
    for step, rounds in ((COARSE, FIRST_ROUNDS), (COARSE, ROUNDS), (FINE, ROUNDS)):
        shop.look_at(step)
        latest = None
        for prices in dive.generate(shop, course, rounds):
            if prices is None:
                work += 1
                found = draft("patterns at resource prices" if work == 1 else "patterns at LP prices")
                if found:
                    yield found
            else:
                latest = prices
        if latest is None:
            yield SearchDraft(_EMPTY_BOARD, np.inf, work, "", True)
            return  # nothing can be placed
        columns = dive.columns_of(course)
        weights = latest._replace(weight=latest.weight[latest.weight > dive.NONE])
        rate, extra = course.rate.copy(), course.extra.copy()
        for _ in dive.dive(shop, course, weights, columns, dive.SHALLOW):
            work += 1
        found = draft("LP diving")
        if found:
            yield found
        yield SearchDraft(_EMPTY_BOARD, np.inf, work, "", True)
        if rounds == FIRST_ROUNDS:
            continue  # better prices gain more than a local search at these
        for _ in local_search.run(rate, extra):
            work += 1
            yield draft("local search") or SearchDraft(_EMPTY_BOARD, np.inf, work, "")
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
            yield SearchDraft(_EMPTY_BOARD, np.inf, work, "")
        for _ in local_search.run(rate, extra):
            work += 1
            yield draft("best of several local searches") or SearchDraft(_EMPTY_BOARD, np.inf, work, "")


@dataclass
class _LocalSearch:
    """Refills a few GPUs at a time while that lowers the cost."""

    shop: Workshop
    seed: int
    turns: int = 0

    def run(self, rate: Floats, extra: Floats) -> Iterator[None]:
        """Searches at these prices, some tries a turn, until many tries in a row gained nothing."""
        shop, t = self.shop, self.shop.t
        heat = HEAT_SHARE * float(np.median([pool.price_per_hour for pool in t.pools]))
        rate = np.where(rate > 0, rate, rate[rate > 0].min(initial=np.inf))
        tries = TRIES + int(TRIES_PER_GPU * len(shop.used))
        least, since = shop.cost, 0
        while since < PATIENCE_TRIES + PATIENCE_TRIES_PER_GPU * len(shop.used):
            shop.look_at(STEPS[self.turns % len(STEPS)])
            shop.improve(rate, extra, self.seed * 1_000_003 + self.turns, tries, heat)
            self.turns += 1
            yield
            since = 0 if shop.cost < least - 1e-9 else since + tries
            least = min(least, shop.cost)


_NONE = np.zeros(0, dtype=np.int64)
_EMPTY_BOARD = PlacedInstances(_NONE, _NONE, _NONE, _NONE, np.zeros(0), np.zeros(0))
