"""Chooses whole patterns: an integer programme over all patterns that searches, fillings and the bound found.

The bound's patterns are exact at its prices. Fillings at shaken prices are quick, and each gives patterns for other
needs. Which of them fit together the programme sees at once, where dives and local searches decide one after the other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import highspy
import numpy as np

from solvers.planning.fleet.grids import Floats
from solvers.planning.search.tables import Tables
from solvers.planning.search.workshop import ColumnKey, PatternColumn, Workshop

MOST_GPUS = 200  # of a fleet: in a larger one, local search finds more in the same time
FILLINGS, FILLED_GPUS = 600, 6_000  # at the prices of one LP, at most: so many fillings, and GPUs in all of them
SHAKES = (0.05, 0.15, 0.3, 0.5)  # of the logarithms of prices
STEPS_SM_PERCENT = (10, 4, 2)
SHARE_STEPS_SM_PERCENT = (4, 1, 1)  # where shares are priced, each per cent is paid
MOST_COLUMNS = 1_200  # in the programme, those of least reduced cost
MOST_NODES = 1  # of its tree: heuristics at its root find most, and local search more than other nodes
HEURISTICS_SHARE = 0.4  # of the programme's effort
WHOLE_GAP_SHARE = 1e-6  # of the cost: a choice so close to the best is the best


def may_choose(t: Tables) -> bool:
    """Returns whether the programme knows all that matters: few GPUs, and no budget of watts."""
    return sum(len(pool.gpus) for pool in t.pools) <= MOST_GPUS and t.problem.policy.power_budget_w is None


class ColumnPrices(NamedTuple):
    """The LP's cost, its prices of rates and of GPUs, and the reduced cost of each column."""

    cost: float
    rate: Floats
    extra: Floats
    reduced: Floats


class ChosenPatterns(NamedTuple):
    """Whole patterns, and the prices at which they were looked for."""

    columns: list[PatternColumn]
    prices: ColumnPrices


class PatternChoice:
    """The patterns found so far, and the cheapest choice among them."""

    def __init__(self, shop: Workshop, seed: int) -> None:
        self.shop, self._seed, self._rounds = shop, seed, 0
        self._columns: dict[ColumnKey, PatternColumn] = {}
        self._lasting = np.flatnonzero(shop.t.min_instances > 1)

    def note(self, columns: Sequence[PatternColumn]) -> None:
        """Keeps these patterns to choose from."""
        for column in columns:
            self._columns.setdefault(column.key, column)

    def widen(self) -> None:
        """Fills the empty fleet many times, at the LP's prices, shaken, and for parts of all needs."""
        shop, rng = self.shop, np.random.default_rng([self._seed, self._rounds])
        self._rounds += 1
        before = shop.pools.extra.copy()
        prices = self._relax(list(self._columns.values()))
        steps = STEPS_SM_PERCENT if shop.t.problem.policy.pricing == "gpu" else SHARE_STEPS_SM_PERCENT
        floor = float(prices.rate[prices.rate > 0].min(initial=np.inf))
        rate = np.where(prices.rate > 0, prices.rate, floor if floor < np.inf else 1.0)
        number, filled = 0, 0
        while number < FILLINGS and filled < FILLED_GPUS:
            shop.clear_all()
            shop.look_at(steps[number % len(steps)])
            shop.pools.extra[:] = prices.extra * 1.5 * rng.random()
            shaken = rate * np.exp(rng.choice(SHAKES) * rng.standard_normal(len(rate)))
            part = np.where(rng.random(len(rate)) < 0.5, 1.0, rng.random(len(rate)))
            used = shop.fill(shaken, shop.t.rate * part)
            self.note(shop.columns(used))
            number, filled = number + 1, filled + len(used)
        shop.clear_all()
        shop.pools.extra[:] = before

    def choose(self, known: Sequence[PatternColumn], cost: float, *, is_fresh: bool) -> ChosenPatterns:
        """Returns the best choice found that may cost less than `known`, which costs so much.

        A fresh choice knows nothing of it: it may cost more, but is one to search around.
        """
        columns = list(self._columns.values())
        relaxed = self._relax(columns)
        near = np.argsort(relaxed.reduced, kind="stable")[:MOST_COLUMNS]
        near = near[relaxed.reduced[near] < cost - relaxed.cost]  # no others are in a cheaper choice
        first = [] if is_fresh else known
        kept = {column.key: column for column in [*first, *(columns[at] for at in near)]}
        times = Counter(column.key for column in first)
        h = self._programme(list(kept.values()), first)
        h.setOptionValue("mip_max_nodes", MOST_NODES)
        h.setOptionValue("mip_heuristic_effort", HEURISTICS_SHARE)
        h.setOptionValue("mip_rel_gap", WHOLE_GAP_SHARE)
        h.setOptionValue("random_seed", self._rounds)
        if first:
            start = highspy.HighsSolution()
            start.col_value = np.concatenate([self._missing(known), [float(times[key]) for key in kept]])
            h.setSolution(start)
        h.run()
        count = np.rint(np.array(h.getSolution().col_value)[len(self.shop.t.services) :]).astype(np.int64)
        chosen = [column for column, number in zip(kept.values(), count.tolist(), strict=True) for _ in range(number)]
        return ChosenPatterns(chosen, relaxed)

    def _missing(self, chosen: Sequence[PatternColumn]) -> Floats:
        """Returns the part of each service's need that these GPUs do not cover."""
        covered = self._matrix(chosen).sum(axis=1)[: len(self.shop.t.services)]
        missing: Floats = np.maximum(1.0 - covered, 0.0)
        return missing

    def _relax(self, columns: list[PatternColumn]) -> ColumnPrices:
        """Solves the programme in parts of GPUs."""
        services, lasting = len(self.shop.t.services), len(self._lasting)
        h = self._programme(columns, is_whole=False)
        h.run()
        solution = h.getSolution()
        dual = np.array(solution.row_dual)
        rate = np.maximum(dual[:services], 0.0) / self.shop.t.rate
        extra = np.maximum(-dual[services + lasting : services + lasting + len(self.shop.counts)], 0.0)
        cost, reduced = float(h.getInfo().objective_function_value), np.array(solution.col_dual)[services:]
        return ColumnPrices(cost, rate, extra, reduced)

    def _programme(
        self, columns: Sequence[PatternColumn], known: Sequence[PatternColumn] = (), *, is_whole: bool = True
    ) -> highspy.Highs:
        """Returns the programme over these columns.

        minimise  sum of cost x columns + unserved price x missing
        so that   columns cover every need and run minInstances where all is served; of each pool no more than it has.

        A choice that is known may run fewer: the programme asks for instances that carry half of an even share, while
        those of a plan with more of them may carry less.
        """
        t, lasting, counts = self.shop.t, self._lasting, self.shop.counts
        services, pools = len(t.services), len(counts)
        missing = np.zeros((services + len(lasting) + pools, services))
        missing[:services] = np.eye(services)
        missing[services + np.arange(len(lasting)), lasting] = t.min_instances[lasting]
        matrix = np.hstack([missing, self._matrix(columns)])
        instances = t.min_instances[lasting].astype(np.float64)
        if known:
            covered = self._matrix(known).sum(axis=1)[services : services + len(lasting)]
            instances = np.minimum(instances, covered + instances * self._missing(known)[lasting])
        column, row = np.nonzero(matrix.T)
        lp, none = highspy.HighsLp(), highspy.kHighsInf
        lp.num_row_, lp.num_col_ = matrix.shape
        lp.col_cost_ = np.array([*(t.unserved_price * np.maximum(t.rate, 1.0)), *(c.cost for c in columns)])
        lp.col_lower_ = np.zeros(lp.num_col_)
        lp.col_upper_ = np.array([*np.ones(services), *(counts[c.pool] for c in columns)])
        lp.row_lower_ = np.array([*np.ones(services), *instances, *np.full(pools, -none)])
        lp.row_upper_ = np.array([*np.full(services + len(lasting), none), *counts])
        lp.a_matrix_.format_ = highspy.MatrixFormat.kColwise
        lp.a_matrix_.start_ = np.searchsorted(column, np.arange(lp.num_col_ + 1)).astype(np.int32)
        lp.a_matrix_.index_, lp.a_matrix_.value_ = row.astype(np.int32), matrix[row, column]
        if is_whole:
            kinds = highspy.HighsVarType
            lp.integrality_ = [kinds.kContinuous] * services + [kinds.kInteger] * len(columns)
        h = highspy.Highs()
        h.setOptionValue("output_flag", False)
        h.setOptionValue("threads", 1)
        h.passModel(lp)
        return h

    def _matrix(self, columns: Sequence[PatternColumn]) -> Floats:
        """Returns the part of each need that a column carries, what it counts as an instance of each, and its pool.

        An instance counts as a whole one from half of an even share of minInstances on.
        """
        t, lasting = self.shop.t, self._lasting
        services, pools = len(t.services), len(self.shop.counts)
        part, is_pool = np.zeros((services, len(columns))), np.zeros((pools, len(columns)))
        for at, column in enumerate(columns):
            np.add.at(part[:, at], t.offer_service[column.offers], column.caps)
            is_pool[column.pool, at] = 1.0
        part = np.minimum(part / t.rate[:, None], 1.0)
        counted = np.minimum(part[lasting] * 2 * t.min_instances[lasting][:, None], 1.0)
        return np.concatenate([part, counted, is_pool])
