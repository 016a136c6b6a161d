"""The bound of the joint plan: no valid plan costs less, whichever prices it was computed from."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import replace

import numpy as np

from solvers.planning.bound.attainable import attainable
from solvers.planning.bound.convergence import TUNING, Convergence
from solvers.planning.bound.fleet import PriceEvaluation, fleet, look_at
from solvers.planning.bound.kept import is_of
from solvers.planning.bound.market import ClassPattern
from solvers.planning.bound.refine import halve
from solvers.planning.bound.scope import left_out, why_not
from solvers.planning.bound.search import NEAR_SHARE, BoundSearch, Round
from solvers.planning.bound.start import evened, first_prices
from solvers.planning.fleet.grids import Floats
from solvers.planning.kept_search import KeptSearch
from solvers.planning.search.tables import Tables
from solvers.planning.steps import NO_STEPS, RateSteps

__all__ = ["Round", "bound_at", "left_out", "rounds", "why_not"]

LEVELS = 1


def rounds(tables: Tables, work: int | None = None, kept: KeptSearch | None = None) -> Iterator[Round]:
    """Yields better and better bounds, until prices and classes are as fine as pays, or `work` is done.

    The first prices let every service break even. Then a linear programme takes columns as they are found, over
    families of services that become smaller, in classes of pressure that become finer. With what a search at other
    rates has kept, it goes on from there. Yields nothing if `why_not` gives a reason.
    """
    if why_not(tables) is not None:
        return
    f = fleet(tables, LEVELS)
    s = BoundSearch(f, sum(len(m.classes) * f.work_of_class(m) for m in f.markets))
    if kept is not None and is_of(kept, f) and len(f.need) and f.markets:
        patterns = s.resume(kept)
        yield s.best
        yield from Convergence(s, patterns, is_continued=True).run(work)
        return
    evaluation = s.look(first_prices(f))
    yield s.best
    if not len(f.need) or not f.markets:
        yield replace(s.best, converged=True, limit=s.rough)
        return
    patterns = yield from _first_patterns(s, evaluation, work)
    if work is None or s.work < work:
        yield from Convergence(s, patterns).run(work)


def _first_patterns(
    s: BoundSearch, evaluation: PriceEvaluation, work: int | None
) -> Generator[Round, None, list[ClassPattern]]:
    """Evens the first prices out, or scales them down where worths do not scale with them, and halves classes."""
    patterns = list(evaluation.patterns)
    if s.fleet.scales:
        for found in evened(s.fleet, evaluation, np.zeros(len(s.fleet.markets)), TUNING.even_steps):
            s.take(found)
            patterns += found.patterns
            yield s.best
            if work is not None and s.work >= work:
                return patterns
    else:
        patterns += s.shrink(evaluation).patterns
        yield s.best
    for moved in s.deepen(patterns, TUNING.first_gap_share):
        patterns = moved
        yield s.best
    return patterns


def bound_at(tables: Tables, prices: Floats, steps: RateSteps = NO_STEPS) -> float:
    """Returns the bound that any prices of a request a second, and of steps, prove; a price below 0 counts as 0."""
    f = replace(fleet(tables, LEVELS), steps=steps)
    prices = f.limited(np.maximum(prices, 0.0))
    best = -np.inf
    while True:
        evaluation = look_at(f, prices)
        best = max(best, evaluation.bound)
        if not halve(f, evaluation.worth, prices, NEAR_SHARE)[0]:
            return attainable(f).above(best)
