"""Keeps the best bound so far while prices are looked at."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from solvers.planning.bound.attainable import AttainableHere, attainable
from solvers.planning.bound.counts import GpuCounts
from solvers.planning.bound.fleet import BoundFleet, PriceEvaluation, look_at, market_of, scale_prices
from solvers.planning.bound.kept import restore, restored_columns
from solvers.planning.bound.market import RealPattern, best_alone
from solvers.planning.duals import Duals
from solvers.planning.fleet.grids import Floats, Ints
from solvers.planning.kept_search import KeptSearch
from solvers.planning.steps import NO_STEPS, RateSteps

CAP_TOLERANCE_SHARE = 1e-5  # lines are float32
SCALE_TRIES = 12  # multiples of the first prices, where worths do not scale with them
LATE_WORK = 1_000_000  # steps, about a second: so far may a look that begins within the limit of work go beyond it


@dataclass(frozen=True, slots=True)
class Round:
    """The best bound so far, certified, and the prices it comes from."""

    bound: float
    prices: Floats  # of a request a second of each service, and then of each of the steps
    converged: bool
    work: int
    programme: float = np.inf  # what the linear programme cost when it was last solved: it proves nothing
    duals: Duals | None = None  # for other rates
    steps: RateSteps = NO_STEPS
    kept: KeptSearch | None = None  # for the next search


class BoundSearch:
    """The prices looked at so far; the best are the centre."""

    def __init__(self, f: BoundFleet, work: int, most_work: int | None = None) -> None:
        self.fleet, self.work = f, work
        self.most_work = np.inf if most_work is None else most_work
        self.centre: Floats = np.zeros(len(f.need))
        self.rough = -np.inf  # before it is rounded up to what GPUs can cost
        self.sums: AttainableHere = attainable(f)
        self.is_capped = capped(f)
        self.counts = GpuCounts(f, self.sums)
        self.best = Round(-np.inf, self.centre, False, work)
        self.is_better = False

    def look(self, prices: Floats, *, least: float = -np.inf) -> PriceEvaluation:
        """Evaluates prices, exactly if they may prove more than `least`; they become the centre if they prove more."""
        left = max(self.most_work - self.work, 0.0) + LATE_WORK
        return self.take(look_at(self.fleet, prices, least=least, most_work=left))

    def take(self, evaluation: PriceEvaluation) -> PriceEvaluation:
        """Takes an evaluation; its prices become the centre if they prove more."""
        f = self.fleet
        self.work += evaluation.work
        by, bound = scale_prices(f, evaluation.prices, evaluation.worth)
        self.counts.take(evaluation.prices, evaluation.worth)
        if by != 1.0:
            self.counts.take(evaluation.prices * by, evaluation.worth * by)
        self.is_better = bound > self.rough
        if self.is_better:
            self.rough, self.centre = bound, evaluation.prices * by
            worth = (evaluation.worth * by)[market_of(f)]
            self.best = replace(self.best, bound=self.sums.above(bound), prices=self.centre, steps=f.steps)
            self.best = replace(self.best, duals=self._duals(worth))
        self.best = replace(self.best, work=self.work)
        self._raise_to(self.counts.least()[0])
        return evaluation

    def _raise_to(self, bound: float) -> None:
        """Takes a bound that several prices prove together."""
        if bound > self.best.bound:
            duals = replace(self.best.duals, found=bound) if self.best.duals else None
            self.best = replace(self.best, bound=bound, duals=duals)

    def _duals(self, worth: Floats) -> Duals:
        """Returns the best prices as other rates need them; `worth` is that of a GPU of each pool."""
        f, t = self.fleet, self.fleet.tables
        return Duals(
            services=tuple(t.services),
            need=f.need,
            price=self.centre[: len(f.need)],
            unserved_price=t.unserved_price,
            is_capped=self.is_capped,
            can_be_served=self.sums.can_be_served,
            worth=worth,
            fixed=f.fixed,
            count=f.count,
            scales=f.scales,
            attainable=self.sums.costs,
            steps=f.steps,
            step_price=self.centre[len(f.need) :],
            found=self.best.bound,
        )

    def replace_steps(self, kept: Ints, added: RateSteps) -> None:
        """Keeps some of the steps, with their prices, and adds others without a price yet."""
        services = len(self.fleet.need)
        self.fleet.steps = self.fleet.steps.at(kept).plus(added)
        self.centre = np.concatenate([self.centre[:services], self.centre[services + kept], np.zeros(len(added))])

    def resume(self, kept: KeptSearch) -> list[RealPattern]:
        """Goes on where another search has ended; returns its columns and those found now."""
        self.centre = restore(self.fleet, kept)
        self.work += sum(len(m.classes) * 2 * (m.last - m.first) for m in self.fleet.markets)
        patterns = restored_columns(self.fleet, kept.columns, self.centre)
        return patterns + self.look(self.centre).patterns

    def shrink(self, evaluation: PriceEvaluation) -> PriceEvaluation:
        """Scales prices down, by trial, that make GPUs worth far more than their cost."""
        low, high = 0.0, 1.0
        for _ in range(SCALE_TRIES):
            if self.work >= self.most_work:
                return evaluation
            middle = 0.5 * (low + high)
            tried = self.look(evaluation.prices * middle)
            if bool((tried.worth[market_of(self.fleet)] > self.fleet.fixed * (1 + 1e-9) + 1e-12).any()):
                high = middle
            else:
                low = middle
        return self.look(self.centre)


def capped(f: BoundFleet) -> NDArray[np.bool_]:
    """Returns the services of which one GPU could carry all: more of them may be worth more to a GPU.

    To be called before classes are halved: halves do not compute all lines again.
    """
    most = np.zeros(len(f.need))
    for m in f.markets:
        alone_spare = np.where(f.tables.survives[m.service], m.alone_spare, 0.0)
        np.maximum.at(most, m.service, np.maximum(m.alone, alone_spare))
        for c in m.classes:
            for lines in (c.at_lo, c.spare_lo):
                np.maximum.at(most, m.service[: len(lines)], lines.max(axis=1, initial=0.0))
    return most >= f.need * (1 - CAP_TOLERANCE_SHARE)


def alone_patterns(f: BoundFleet, prices: Floats) -> list[RealPattern]:
    """Returns the GPU of a dedicated service in each market."""
    found = []
    steps = f.priced_steps(prices)
    for m in f.markets:
        worth, at = best_alone(m, prices, steps)
        if at >= 0 and worth > 0.0:
            found.append(
                RealPattern(
                    m.number,
                    np.array([at + m.first]),
                    m.alone_sm[at : at + 1],
                    m.alone[at : at + 1],
                    m.alone_spare[at : at + 1],
                    1.0,
                )
            )
    return found
