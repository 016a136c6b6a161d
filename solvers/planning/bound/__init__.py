"""The bound of the joint plan: no right plan costs less, whatever the prices it was reckoned from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from solvers.planning.bound.attainable import attainable
from solvers.planning.bound.fleet import fleet, look_at
from solvers.planning.bound.master import BoundMaster
from solvers.planning.bound.refine import halve
from solvers.planning.bound.scope import left_out, why_not
from solvers.planning.bound.search import NEAR, BoundSearch, Round, alone_patterns, families
from solvers.planning.bound.start import evened, first_prices
from solvers.planning.search.tables import Floats, Tables

__all__ = ["Round", "bound_at", "left_out", "rounds", "why_not"]

LEVELS = 1
FAMILIES = (60, 130, 250, 380)
WEIGHT = 0.5  # of the best prices so far, in the mixture with the linear programme's that is looked at next
LARGE = 1_000  # services: prices of more are not found one by one
RECENT = 2  # rounds: what the linear programme has bought since then goes on
SHIFT = 0.382  # of a family
PATIENCE = 10  # rounds
SLOW = 0.003  # of the bound: what so many rounds should prove
STALLED = 1e-3  # so small a weight: nothing new is found even at the linear programme's own prices
EVENING = 10  # steps towards where every service breaks even: at first, and before families become smaller
AGAIN = 10
STEP_UP = 0.03  # of the bound: so close, smaller families and finer classes prove more than better prices
CLOSE = 2e-4  # of the bound: the prices are as good as the classes allow


def rounds(tables: Tables, work: int | None = None) -> Iterator[Round]:
    """Better and better bounds, until prices and classes are as fine as pays, or `work` is done.

    First prices at which every service breaks even; then those of a linear programme that takes columns as they are
    found, by families of services that become smaller, in classes of pressure that become finer. Nothing where
    `why_not` has a reason.
    """
    if why_not(tables) is not None:
        return
    f = fleet(tables, LEVELS)
    s = BoundSearch(f, sum(len(m.classes) * f.work_of_class(m) for m in f.markets))
    seen = s.look(first_prices(f))
    yield s.best
    if not len(f.need) or not f.markets:
        yield replace(s.best, converged=True, limit=s.rough)
        return
    patterns = list(seen.patterns)
    if f.scales:
        for found in evened(f, seen, np.zeros(len(f.markets)), EVENING):
            s.take(found)
            patterns += found.patterns
            yield s.best
            if work is not None and s.work >= work:
                return
    else:
        patterns += s.shrink(seen).patterns
        yield s.best
    for moved in s.deepen(patterns, STEP_UP):
        patterns = moved
        yield s.best
    master = BoundMaster(f)
    sizes = [size for size in FAMILIES if 2 * size <= len(f.need)]
    is_large, turn = len(f.need) > LARGE, 0
    if not is_large:
        sizes.append(len(f.need))
    master.rebuild(patterns, s.centre, families(f, sizes.pop(0)))
    weight, goal, since, before = WEIGHT, STEP_UP, 0, s.rough
    while work is None or s.work < work:
        prices, limit, steps = master.solve()
        if not np.isfinite(limit):
            break
        s.work += steps
        # Each price by itself, and none held back at the edge of the box: no prices prove more in these classes.
        if not sizes and not is_large and not master.is_boxed:
            s.best = replace(s.best, limit=min(s.best.limit, limit))
        gap = (limit - s.rough) / max(abs(limit), 1e-300)
        if since == PATIENCE:
            is_slow, since, before = s.rough - before <= SLOW * abs(s.rough) and gap > goal, 0, s.rough
        else:
            is_slow, since = False, since + 1
        if (gap <= goal and not master.is_boxed) or weight < STALLED or is_slow:
            weight, since, before = WEIGHT, 0, s.rough
            classes = sum(len(m.classes) for m in f.markets)
            patterns = master.recent(RECENT)
            for moved in s.deepen(patterns, SLOW if is_slow else 0.5 * goal):
                patterns = moved
                yield s.best
            if (sizes or is_slow or is_large) and f.scales:
                seen = s.look(s.centre)
                extra = np.array([s.best.pool_prices[m.pools].max() for m in f.markets])
                for found in evened(f, seen, extra, AGAIN):
                    s.take(found)
                    patterns += found.patterns
            if is_slow and not is_large:
                master.rebuild(patterns, s.centre, master.family)
            elif sizes:
                master.rebuild(patterns, s.centre, families(f, sizes.pop(0)))
            elif is_large:
                turn += 1
                master.rebuild(patterns, s.centre, families(f, FAMILIES[-1], turn * SHIFT % 1.0))
            elif sum(len(m.classes) for m in f.markets) > classes:
                master.rebuild(patterns, s.centre, master.family)
                goal = max(0.5 * goal, CLOSE)
            elif goal > CLOSE:
                goal = CLOSE
            else:
                yield replace(s.best, converged=True)
                return
            yield s.best
            continue
        seen = s.look(weight * s.centre + (1 - weight) * np.minimum(prices, f.most_price))
        if s.is_better:
            master.move(s.centre)
        if not master.add(seen.patterns + alone_patterns(f, seen.prices)):
            weight *= 0.5
        else:
            weight = WEIGHT
        master.purge(8)
        yield s.best


def bound_at(tables: Tables, prices: Floats) -> float:
    """The bound that these prices of a request a second prove, whatever they are; each below 0 counts as 0."""
    f = fleet(tables, LEVELS)
    prices = np.minimum(np.maximum(prices, 0.0), f.most_price)
    best = -np.inf
    while True:
        seen = look_at(f, prices)
        best = max(best, seen.bound)
        if not halve(f, seen.worth, prices, NEAR)[0]:
            return attainable(f).above(best)
