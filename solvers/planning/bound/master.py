"""The restricted master: a linear programme over the patterns to buy that takes more columns as they are found."""

from __future__ import annotations

from itertools import groupby
from operator import attrgetter
from typing import Any, TypeAlias

import highspy
import numpy as np

from solvers.planning.bound.columns import write_columns
from solvers.planning.bound.fleet import BoundFleet
from solvers.planning.bound.market import Market, RealPattern
from solvers.planning.fleet.grids import Floats, Ints

PatternKey: TypeAlias = tuple[int, bytes, bytes]
MetPatterns: TypeAlias = dict[PatternKey, RealPattern]  # all that a search took as columns, for its caller

INF = highspy.kHighsInf
MARKET = attrgetter("market")  # of a pattern


WIDE_FACTOR = 1.15  # prices that the master may name are within this factor of those that have proved themselves
WIDEST_FACTOR = 1.5
FEW_SERVICES = 130  # of so many, the prices of steps may be any: they settle soon
STEP_WIDE_SHARE = 0.1  # of a service's money: prices of steps are within so much of those that have proved themselves
STEP_WIDEST_SHARE = 0.5
STEP_FACTOR = 1.25

PRIMAL, DUAL = 4, 1  # HiGHS's numbers of its simplex strategies: columns are added, so the basis stays primal feasible


class BoundMaster:
    """minimise what GPUs and unserved rates cost, so that

    every service's rate is covered or unserved          (service rows)
    patterns use GPUs that are bought                    (market rows)
    and fill as many steps as each service's rate does   (step rows)
    """

    def __init__(self, f: BoundFleet, met: MetPatterns | None = None) -> None:
        self.fleet, self.met = f, met
        self.columns: list[RealPattern] = []
        self.known: set[PatternKey] = set()
        self.idle_rounds: Ints = np.zeros(0, dtype=np.int64)
        self.is_step_boxed = len(f.need) > FEW_SERVICES

    def rebuild(self, patterns: list[RealPattern], centre: Floats) -> None:
        """Starts over with the present steps, these columns, and prices around these."""
        f = self.fleet
        self.wide = np.full(len(f.need), WIDE_FACTOR)
        self.step_wide = np.full(len(f.steps), STEP_WIDE_SHARE)
        self._box(centre)
        services, markets = len(f.need), len(f.markets)
        steps = f.steps
        self.step_row = services + markets
        rows = self.step_row + len(steps)
        self.step_order = np.argsort(steps.service, kind="stable")
        self.step_start = np.searchsorted(steps.service[self.step_order], np.arange(len(f.need) + 1))
        self.most_steps = int(np.diff(self.step_start).max(initial=0))
        low, high = np.full(rows, -INF), np.zeros(rows)
        low[:services], high[:services] = 1.0, INF
        low[self.step_row :], high[self.step_row :] = 1.0, INF
        pools = len(f.count)
        of = np.zeros(pools, dtype=np.int32)
        for m in f.markets:
            of[m.pools] = services + m.number
        lp = highspy.HighsLp()
        boxed = len(self.step_low)
        base = 2 * (services + boxed) + pools
        lp.num_col_, lp.num_row_ = base, rows
        lp.col_cost_ = np.concatenate([self._edges(), f.fixed])
        lp.col_lower_ = np.zeros(base)
        lp.col_upper_ = np.concatenate([np.full(base - pools, INF), f.count])
        lp.row_lower_, lp.row_upper_ = low, high
        lp.a_matrix_.format_ = highspy.MatrixFormat.kColwise
        each = [
            np.concatenate([[number], self.step_row + np.flatnonzero(steps.service == number)])
            for number in range(services)
        ]
        of_steps = self.step_row + np.arange(boxed)[:, None]
        index = [*each, *of_steps, *each, *of_steps, *of[:, None]]
        signs = np.repeat([1.0, -1.0], [services + boxed, services + boxed + pools])
        lp.a_matrix_.start_ = np.cumsum([0, *(len(rows) for rows in index)]).astype(np.int32)
        lp.a_matrix_.index_ = np.concatenate(index).astype(np.int32)
        lp.a_matrix_.value_ = np.repeat(signs, [len(rows) for rows in index])
        h = highspy.Highs()
        h.setOptionValue("output_flag", False)
        h.setOptionValue("threads", 1)
        h.setOptionValue("presolve", "off")
        h.setOptionValue("simplex_strategy", PRIMAL)
        h.passModel(lp)
        self.highs, self.base = h, base
        self.columns, self.known, self.idle_rounds = [], set(), np.zeros(0, dtype=np.int64)
        self.add(patterns)

    def use(self, least: Floats, most: Floats) -> None:
        """Has the patterns use so many GPUs of each pool."""
        pools = np.arange(self.base - len(self.fleet.count), self.base, dtype=np.int32)
        self.highs.changeColsBounds(len(pools), pools, least, most)

    def move(self, centre: Floats) -> None:
        """Looks for prices around these."""
        self._box(centre)
        edges = self._edges()
        self.highs.changeColsCost(len(edges), np.arange(len(edges), dtype=np.int32), edges)

    def _box(self, centre: Floats) -> None:
        f = self.fleet
        money = f.money(centre)
        each, wide = money / f.need, self.wide
        self.low, self.high = np.minimum(each / wide, f.most_price), np.minimum(each * wide, f.most_price)
        boxed = len(f.steps) if self.is_step_boxed else 0
        of_steps = (centre[len(f.need) :] * f.steps.least)[:boxed]
        reach = (self.step_wide * money[f.steps.service])[:boxed]
        self.step_low, self.step_high = np.maximum(of_steps - reach, 0.0), of_steps + reach

    def _edges(self) -> Floats:
        """Returns the cost of each service's shortfall of its rate and of steps, and the gain from more than all."""
        need = self.fleet.need
        return np.concatenate([self.high * need, self.step_high, -self.low * need, -self.step_low])

    def add(self, patterns: list[RealPattern]) -> int:
        """Takes patterns as columns; returns how many were new."""
        fresh = []
        for p in patterns:
            key = _identify(p)
            if key not in self.known:
                self.known.add(key)
                fresh.append(p)
                if self.met is not None:
                    self.met[key] = p
        if not fresh:
            return 0
        made = [
            self._columns(self.fleet.markets[market], list(group))
            for market, group in groupby(sorted(fresh, key=MARKET), key=MARKET)
        ]
        counts, rows, entries, costs = [np.concatenate(each) for each in zip(*made, strict=True)]
        n = len(fresh)
        self.highs.addCols(
            n, costs, np.zeros(n), np.full(n, INF), len(rows), (np.cumsum(counts) - counts).astype(np.int32),
            rows.astype(np.int32), entries,
        )  # fmt: skip
        self.idle_rounds = np.concatenate([self.idle_rounds, np.zeros(n, dtype=np.int64)])
        return n

    def _columns(self, m: Market, fresh: list[RealPattern]) -> tuple[Ints, Ints, Floats, Floats]:
        """Takes patterns of a market; returns their sizes, rows, entries and costs."""
        steps, n = self.fleet.steps, len(fresh)
        self.columns += fresh
        start = np.cumsum([0, *[len(p.offers) for p in fresh]])
        offers, sms = np.concatenate([p.offers for p in fresh]) - m.first, np.concatenate([p.sms for p in fresh])
        most = len(offers) * (1 + self.most_steps) + n
        begin, cost = np.zeros(n + 1, dtype=np.int64), np.zeros(n)
        row, entry = np.zeros(most, dtype=np.int64), np.zeros(most)
        write_columns(
            self.fleet.need, m.service[offers], m.profile[offers], m.energy, start, sms,
            np.concatenate([p.rates for p in fresh]), np.concatenate([p.spare for p in fresh]),
            np.array([p.used_share for p in fresh]), m.share_price, self.step_start, self.step_order, steps.length,
            steps.rise, steps.least, steps.spare, len(self.fleet.need) + m.number, self.step_row, begin, row, entry,
            cost,
        )  # fmt: skip
        return np.diff(begin), row[: begin[-1]], entry[: begin[-1]], cost

    def solve(self) -> tuple[Floats, float, int]:
        """Returns prices of rates, the value, and the simplex steps taken."""
        h: Any = self.highs
        h.run()
        if h.getModelStatus() != highspy.HighsModelStatus.kOptimal:
            h.clearSolver()
            h.setOptionValue("simplex_strategy", DUAL)
            h.run()
            h.setOptionValue("simplex_strategy", PRIMAL)
        if h.getModelStatus() != highspy.HighsModelStatus.kOptimal:
            return self.low, float("inf"), 0
        solution, info = h.getSolution(), h.getInfo()
        duals = np.array(solution.row_dual)
        amounts = np.array(solution.col_value)
        services = len(self.fleet.need)
        could_rise = self.high < self.fleet.most_price
        slack = amounts[: self.base - len(self.fleet.count)].reshape(2, -1)
        short, over = slack[:, :services]
        hits = ((short > 1e-7) & could_rise) | (over > 1e-7)
        short, over = slack[:, services:]
        step_hits = (short > 1e-7) | ((over > 1e-7) & (self.step_low > 0.0))
        self.is_boxed = bool(hits.any() or step_hits.any())
        if self.is_step_boxed:
            self.step_wide = np.where(
                step_hits,
                np.minimum(self.step_wide * STEP_FACTOR, STEP_WIDEST_SHARE),
                np.maximum(self.step_wide / STEP_FACTOR, STEP_WIDE_SHARE),
            )
        self.wide = np.where(
            hits, np.minimum(self.wide**1.25, WIDEST_FACTOR), np.maximum(np.sqrt(self.wide), WIDE_FACTOR)
        )
        self.amounts = amounts[self.base :]
        self.idle_rounds = np.where(np.array(solution.col_dual)[self.base :] > 1e-9, self.idle_rounds + 1, 0)
        of_rates = np.maximum(duals[:services], 0.0) / self.fleet.need
        of_steps = np.maximum(duals[self.step_row :], 0.0) / self.fleet.steps.least
        prices = np.concatenate([of_rates, of_steps])
        return prices, float(info.objective_function_value), int(info.simplex_iteration_count)

    def bought(self) -> list[tuple[RealPattern, float]]:
        """Returns the columns that the last solution buys, and how many of each."""
        return [(self.columns[place], float(self.amounts[place])) for place in np.flatnonzero(self.amounts > 1e-9)]

    def recent(self, rounds: int) -> list[RealPattern]:
        """Returns the columns that were worth their cost within so many rounds."""
        return [p for p, idle in zip(self.columns, self.idle_rounds, strict=True) if idle <= rounds]

    def purge(self, rounds: int) -> None:
        """Drops columns that were not worth their cost for so many rounds."""
        old = np.flatnonzero(self.idle_rounds > rounds)
        if len(old) < 1000:
            return
        self.highs.deleteCols(len(old), (old + self.base).astype(np.int32))
        gone = set(old.tolist())
        for place in gone:
            self.known.discard(_identify(self.columns[place]))
        self.columns = [p for place, p in enumerate(self.columns) if place not in gone]
        self.idle_rounds = np.delete(self.idle_rounds, old)


def _identify(p: RealPattern) -> PatternKey:
    return p.market, p.offers.tobytes(), p.sms.tobytes()
