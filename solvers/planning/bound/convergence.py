"""Moves the bound's prices towards the best ones, and adds rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from solvers.planning.bound.kept import keep
from solvers.planning.bound.market import RealPattern
from solvers.planning.bound.master import BoundMaster, MetPatterns
from solvers.planning.bound.rounding import broken, least_instances, surviving_nodes
from solvers.planning.bound.search import BoundSearch, Round, alone_patterns
from solvers.planning.fleet.grids import Floats


@dataclass(frozen=True, slots=True)
class ConvergenceTuning:
    """The pace at which prices become finer. Shares are of the bound unless stated otherwise."""

    weight: float = 0.5  # of the best prices so far, in the mixture with the linear programme's
    continued_weight: float = 0.75  # at first where prices are kept from another search: they are near
    most_weight: float = 0.97  # of these, while mixtures prove less: prices of many services are wrong for long
    nearer_factor: float = 0.7  # of the linear programme's weight, after a mixture that proved less
    farther_factor: float = 1.5  # the same, after one that proved more
    stalled_weight: float = 1e-3  # so small, nothing new is found even at the linear programme's own prices
    recent_rounds: int = 2  # what the linear programme has bought within them is kept
    purge_rounds: int = 8  # what it has not bought for so long is dropped
    patience_rounds: int = 10
    slow_share: float = 0.003  # what so many rounds should prove
    first_gap_share: float = 0.03  # so close, more rows prove more than better prices
    steps_at_a_time: int = 64  # ways of rounding rates that are added together
    step_goal_share: float = 2e-3  # the goal after that
    step_gain_share: float = 3e-4  # what those added last should prove before others are
    refute_rounds: int = 60  # for one choice of GPUs
    keep_factor: float = 1.3  # of work, after which what the next search may begin with is kept again
    last_gap_share: float = 2e-4  # the prices are as good as the rows allow


TUNING = ConvergenceTuning()


class Convergence:
    """Rounds of a linear programme."""

    def __init__(
        self,
        search: BoundSearch,
        patterns: list[RealPattern],
        *,
        is_continued: bool = False,
        met: MetPatterns | None = None,
    ) -> None:
        f = search.fleet
        self.search = search
        self.master = BoundMaster(f, met)
        self.goal = TUNING.step_goal_share if is_continued else TUNING.first_gap_share
        self.weight = TUNING.continued_weight if is_continued else TUNING.weight
        self.near = self.weight  # while new patterns are found
        self.rounds, self.before = 0, search.rough
        self.added, self.proved = is_continued, -np.inf
        self.kept_at = 0
        if not is_continued:  # these rows are few and prove much
            search.replace_steps(np.zeros(0, dtype=np.int64), least_instances(f).plus(surviving_nodes(f)))
        self.master.rebuild(patterns, search.centre)

    def run(self, work: int | None) -> Iterator[Round]:
        """Yields better and better bounds until the prices have converged or `work` is done."""
        s, master = self.search, self.master
        while work is None or s.work < work:
            prices, limit, steps = master.solve()
            if not np.isfinite(limit):
                return
            s.work += steps
            s.best = replace(s.best, programme=limit)
            gap = (limit - s.rough) / max(abs(limit), 1e-300)
            is_slow = self._is_slow(gap)
            if (gap <= self.goal and not master.is_boxed) or self.weight < TUNING.stalled_weight or is_slow:
                if self._refine(is_slow):
                    yield from self._refute(work)
                    yield replace(s.best, converged=True)
                    return
            else:
                self._look(prices)
            self._keep()
            yield s.best

    def _keep(self) -> None:
        """Keeps for the next search what is known now, each time that some more work is done."""
        s = self.search
        if s.work >= TUNING.keep_factor * self.kept_at:
            self.kept_at = s.work
            kept = keep(s.fleet, s.centre, self.master.recent(TUNING.purge_rounds))
            s.best = replace(s.best, kept=kept)

    def _is_slow(self, gap: float) -> bool:
        """Tells once in so many rounds if they proved too little."""
        if self.rounds < TUNING.patience_rounds:
            self.rounds += 1
            return False
        gained = self.search.rough - self.before
        self._restart()
        return gained <= TUNING.slow_share * abs(self.search.rough) and gap > self.goal

    def _restart(self) -> None:
        self.rounds, self.before = 0, self.search.rough

    def _look(self, prices: Floats) -> None:
        """Looks at prices between the best and the linear programme's, and gives it what is found there."""
        s, f = self.search, self.search.fleet
        evaluation = s.look(self.weight * s.centre + (1 - self.weight) * f.limited(prices), least=s.rough)
        if s.is_better:
            self.master.move(s.centre)
        if self.master.add(evaluation.patterns + alone_patterns(f, evaluation.prices)):
            self.near = _farther(self.near) if s.is_better else _nearer(self.near)
            self.weight = self.near
        else:
            self.near = TUNING.weight
            self.weight = 0.5 * min(self.weight, self.near)
        self.master.purge(TUNING.purge_rounds)

    def _refine(self, is_slow: bool) -> bool:
        """Adds rows or sets a closer goal; returns True if there is nothing left to do."""
        s, master = self.search, self.master
        self.weight = self.near
        self._restart()
        if self._add_steps():
            if not is_slow:
                self.goal = max(0.5 * self.goal, TUNING.last_gap_share)
            master.rebuild(master.recent(TUNING.recent_rounds), s.centre)
        elif not is_slow and self.goal <= TUNING.last_gap_share:
            return True
        elif not is_slow:
            self.goal = TUNING.last_gap_share
        return False

    def _refute(self, work: int | None) -> Iterator[Round]:
        """Looks for prices at which the cheapest choice of GPUs cannot serve everything, one choice after the other."""
        s = self.search
        while work is None or s.work < work:
            choice = s.counts.least()[1]
            if choice is None or not self._refutes(choice):
                return
            yield s.best

    def _refutes(self, choice: Floats) -> bool:
        """Returns whether prices were found at which a choice of GPUs is refuted."""
        s, f, master = self.search, self.search.fleet, self.master
        most, centre, weight = -np.inf, s.centre, TUNING.weight
        master.move(centre)
        master.use(choice, choice)
        for _ in range(TUNING.refute_rounds):
            prices, limit, steps = master.solve()
            s.work += steps
            if not np.isfinite(limit) or limit <= float(choice @ f.fixed):
                return False
            evaluation = s.look(weight * centre + (1 - weight) * f.limited(prices))
            if s.counts.is_refuted[(s.counts.choices == choice).all(axis=1)].all():
                return True
            proved = float(s.counts.at(evaluation.prices, evaluation.worth, choice))
            if proved > most:
                most, centre = proved, evaluation.prices
                master.move(centre)
            if master.add(evaluation.patterns + alone_patterns(f, evaluation.prices)):
                weight = TUNING.weight
            else:
                weight *= 0.5
                if weight < TUNING.stalled_weight:
                    return False
        return False

    def _add_steps(self) -> bool:
        """Adds ways of rounding rates that the linear programme breaks; returns False if there are none."""
        s, f = self.search, self.search.fleet
        if self.added and s.rough - self.proved <= TUNING.step_gain_share * abs(s.rough):
            return False
        added = broken(f, self.master.bought(), f.money(s.centre), TUNING.steps_at_a_time)
        self.added, self.proved = True, s.rough
        if not len(added):
            return False
        s.replace_steps(np.flatnonzero((s.centre[len(f.need) :] > 0.0) | (f.steps.spare > 0.0)), added)
        return True


def _nearer(weight: float) -> float:
    """Returns the weight of the best prices after a mixture that proved less."""
    return min(TUNING.most_weight, 1 - TUNING.nearer_factor * (1 - weight))


def _farther(weight: float) -> float:
    """Returns the weight of the best prices after a mixture that proved more."""
    return max(TUNING.weight, 1 - TUNING.farther_factor * (1 - weight))
