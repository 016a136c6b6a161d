"""The restricted master: a linear programme over the patterns to buy that takes more columns as they are found."""

from __future__ import annotations

from typing import Any

import highspy
import numpy as np

from solvers.planning.bound.fleet import BoundFleet, sharpen
from solvers.planning.bound.market import ClassPattern
from solvers.planning.bound.step_lines import step_line
from solvers.planning.fleet.grids import Floats, Ints
from solvers.planning.step_prices import rounded

INF = highspy.kHighsInf


WIDE_FACTOR = 1.15  # prices that the master may name are within this factor of those that have proved themselves
WIDEST_FACTOR = 1.5

PRIMAL, DUAL = 4, 1  # HiGHS's numbers of its simplex strategies: columns are added, so the basis stays primal feasible


class BoundMaster:
    """minimise what GPUs and unserved rates cost, so that

    every family's rates are covered or unserved         (family rows)
    patterns use GPUs that are bought                    (market rows)
    each class's patterns make its ends' pressure        (pressure rows: lo and hi in any mixture)
    and fit its memory on average                        (memory rows)
    and fill as many steps as each service's rate does   (step rows, once every service has a row of its own)

    A family is some services whose prices move together: few rows while prices are far off, a row a service at last.
    """

    def __init__(self, f: BoundFleet) -> None:
        self.fleet = f
        self.columns: list[ClassPattern] = []
        self.known: set[tuple[int, int, int, bytes, bytes]] = set()
        self.idle_rounds: Ints = np.zeros(0, dtype=np.int64)

    def rebuild(self, patterns: list[ClassPattern], centre: Floats, family: Ints) -> None:
        """Starts over with the present classes, these columns, and prices in proportion to these."""
        f = self.fleet
        self.family, self.families = family, int(family.max(initial=-1)) + 1
        self.shape = np.maximum(centre[: len(f.need)], 1e-12)
        self.money = np.bincount(family, self.shape * f.need, minlength=self.families)
        self.part = self.shape / self.money[family]  # of a family's money, by a request a second
        self.wide = np.full(self.families, WIDE_FACTOR)
        self._box(centre)
        services, markets = self.families, len(f.markets)
        self.class_row = np.cumsum([services + markets, *(2 * len(m.classes) for m in f.markets)])
        steps = f.steps
        self.step_row = int(self.class_row[-1])
        rows = self.step_row + len(steps)
        self.step_rows: dict[int, list[int]] = {}
        for place, service in enumerate(steps.service):
            self.step_rows.setdefault(int(service), []).append(place)
        low, high = np.full(rows, -INF), np.zeros(rows)
        low[:services], high[:services] = 1.0, INF
        low[self.step_row :], high[self.step_row :] = 1.0, INF
        for m in f.markets:
            low[self.class_row[m.number] : self.class_row[m.number + 1] : 2] = 0.0
        pools = len(f.count)
        of = np.zeros(pools, dtype=np.int32)
        for m in f.markets:
            of[m.pools] = services + m.number
        lp = highspy.HighsLp()
        base = 2 * services + pools
        lp.num_col_, lp.num_row_ = base, rows
        lp.col_cost_ = np.concatenate([*self._edges(), f.fixed])
        lp.col_lower_ = np.zeros(base)
        lp.col_upper_ = np.concatenate([np.full(2 * services, INF), f.count])
        lp.row_lower_, lp.row_upper_ = low, high
        lp.a_matrix_.format_ = highspy.MatrixFormat.kColwise
        of_step = family[steps.service]
        each = [
            np.concatenate([[number], self.step_row + np.flatnonzero(of_step == number)]) for number in range(services)
        ]
        index = [*each, *each, *of[:, None]]
        signs = np.repeat([1.0, -1.0], [services, services + pools])
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
        self.columns, self.known = [], set()
        self.idle_rounds = np.zeros(0, dtype=np.int64)
        self.add(patterns)

    def use(self, least: Floats, most: Floats) -> None:
        """Has the patterns use so many GPUs of each pool."""
        pools = np.arange(2 * self.families, self.base, dtype=np.int32)
        self.highs.changeColsBounds(len(pools), pools, least, most)

    def move(self, centre: Floats) -> None:
        """Looks for prices around these."""
        self._box(centre)
        edges = np.concatenate(self._edges())
        self.highs.changeColsCost(len(edges), np.arange(len(edges), dtype=np.int32), edges)

    def _box(self, centre: Floats) -> None:
        f = self.fleet
        each, wide = f.money(centre) / f.need, self.wide[self.family]
        self.low, self.high = np.minimum(each / wide, f.most_price), np.minimum(each * wide, f.most_price)

    def _edges(self) -> tuple[Floats, Floats]:
        """Returns the cost of each family's uncovered rates, and the gain from more than all of them."""
        need = self.fleet.need
        short = np.bincount(self.family, self.high * need, minlength=self.families).astype(np.float64)
        over = np.bincount(self.family, self.low * need, minlength=self.families).astype(np.float64)
        return short, -over

    def add(self, patterns: list[ClassPattern]) -> int:
        """Takes patterns as columns; returns how many were new.

        Once every service has a price of its own, their lines are made as low as their classes allow.
        """
        fresh = []
        is_fine = self.families == len(self.fleet.need)
        for p in patterns:
            key = (p.market, p.place, p.end, p.offers.tobytes(), p.sms.tobytes())
            if key not in self.known:
                self.known.add(key)
                fresh.append(sharpen(self.fleet, p) if is_fine else p)
        if not fresh:
            return 0
        starts, index, values, costs = [0], [], [], []
        for p in fresh:
            rows, entries, cost = self._column(p)
            index.append(rows)
            values.append(entries)
            costs.append(cost)
            starts.append(starts[-1] + len(rows))
        n = len(fresh)
        self.highs.addCols(
            n, np.array(costs), np.zeros(n), np.full(n, INF), starts[-1], np.array(starts[:-1], dtype=np.int32),
            np.concatenate(index).astype(np.int32), np.concatenate(values),
        )  # fmt: skip
        self.columns += fresh
        self.idle_rounds = np.concatenate([self.idle_rounds, np.zeros(n, dtype=np.int64)])
        return n

    def _column(self, p: ClassPattern) -> tuple[Ints, Floats, float]:
        f = self.fleet
        m = f.markets[p.market]
        served = f.tables.offer_service[p.offers]
        families, place = np.unique(self.family[served], return_inverse=True)
        covered = np.bincount(place, p.rates * self.part[served])
        rows: list[Any] = [families, [self.families + p.market]]
        entries: list[Any] = [covered, [1.0]]
        cost = float(m.energy[m.profile[p.offers - m.first], p.sms] @ p.rates)
        if m.share_price > 0.0:
            used = 1.0 if p.place < 0 else max(p.sm_percent / 100.0, p.memory_gib / m.room_gib)
            cost += m.share_price * used
        if p.place >= 0:
            c = m.classes[p.place]
            row = int(self.class_row[p.market]) + 2 * p.place
            off, over = p.pressure - (c.hi if p.end else c.lo), p.memory_gib - m.room_gib
            rows.append([row, row + 1])
            entries.append([off, over / m.room_gib])
        if self.step_rows:
            filled = self._steps_filled(p, served)
            rows.append([self.step_row + place for place in filled])
            entries.append(list(filled.values()))
        return np.concatenate(rows), np.concatenate(entries), cost

    def _steps_filled(self, p: ClassPattern, served: Ints) -> dict[int, float]:
        """Returns what the residents of a pattern fill of each step row, as a part of what all of the rate fills."""
        m, steps = self.fleet.markets[p.market], self.fleet.steps
        found: dict[int, float] = {}
        ends = np.zeros(2)
        for offer, x, service, rate, spare in zip(p.offers, p.sms, served, p.rates, p.spare, strict=True):
            for place in self.step_rows.get(int(service), ()):
                length, rise = float(steps.length[place]), float(steps.rise[place])
                if p.place < 0:
                    filled = rounded(rate, length, rise)
                else:
                    c, row = m.classes[p.place], offer - m.first
                    own = m.pressure[m.profile[row], x]
                    step_line(length, rise, own, c.lo, c.hi, c.at_lo[row, x], c.at_hi[row, x], ends)
                    filled = float(ends[p.end])
                filled += float(steps.spare[place] * spare)
                found[place] = found.get(place, 0.0) + filled / float(steps.least[place])
        return found

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
            return self.shape, float("inf"), 0
        solution, info = h.getSolution(), h.getInfo()
        duals = np.array(solution.row_dual)
        amounts = np.array(solution.col_value)
        could_rise = np.bincount(self.family, self.high < self.fleet.most_price, minlength=self.families) > 0
        short, over = amounts[: self.families], amounts[self.families : 2 * self.families]
        hits = ((short > 1e-7) & could_rise) | (over > 1e-7)
        self.is_boxed = bool(hits.any())
        self.wide = np.where(
            hits, np.minimum(self.wide**1.25, WIDEST_FACTOR), np.maximum(np.sqrt(self.wide), WIDE_FACTOR)
        )
        self.amounts = amounts[self.base :]
        self.idle_rounds = np.where(np.array(solution.col_dual)[self.base :] > 1e-9, self.idle_rounds + 1, 0)
        of_rates = np.maximum(duals[: self.families], 0.0)[self.family] * self.part
        of_steps = np.maximum(duals[self.step_row :], 0.0) / self.fleet.steps.least
        prices = np.concatenate([of_rates, of_steps])
        return prices, float(info.objective_function_value), int(info.simplex_iteration_count)

    def bought(self) -> list[tuple[ClassPattern, float]]:
        """Returns the columns that the last solution buys, and how many of each."""
        return [(self.columns[place], float(self.amounts[place])) for place in np.flatnonzero(self.amounts > 1e-9)]

    def recent(self, rounds: int) -> list[ClassPattern]:
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
            p = self.columns[place]
            self.known.discard((p.market, p.place, p.end, p.offers.tobytes(), p.sms.tobytes()))
        self.columns = [p for place, p in enumerate(self.columns) if place not in gone]
        self.idle_rounds = np.delete(self.idle_rounds, old)
