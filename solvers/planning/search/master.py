"""The LP over patterns: the GPUs that take each, the price of every rate, and the worth of one more GPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import highspy
import numpy as np

from solvers.planning.fleet.grids import Floats, Ints
from solvers.planning.search.workshop import ColumnKey, PatternColumn


class ResourcePrices(NamedTuple):
    """The prices and weights of an LP's optimum."""

    cost: float
    rate: Floats  # of a request a second of each service
    extra: Floats  # of one more GPU of each pool, beyond its price
    weight: Floats  # of each column
    watt: float  # of a busy watt more
    missing: Floats  # part of each service's need that no column covers


class PatternMaster:
    """minimise  sum of price x columns + penalty x missing
    so that   columns cover every need (in parts of it), a pool's columns are no more than its GPUs,
              and their busy watts no more than are left."""

    def __init__(self, need: Floats, penalty: Floats, counts: Floats, watts: float, service_of: Ints) -> None:
        self.need, self.service_of = need, service_of
        self.wanted = np.flatnonzero(need > 0)
        self.row = np.full(len(need), -1, dtype=np.int64)
        self.row[self.wanted] = np.arange(len(self.wanted))
        self.columns: list[PatternColumn] = []
        self._known: set[ColumnKey] = set()
        self._added = 0
        services, pools = len(self.wanted), len(counts)
        self._pools = pools
        self._lp = highspy.Highs()
        for option, value in (("output_flag", False), ("threads", 1), ("presolve", "off"), ("solver", "simplex")):
            self._lp.setOptionValue(option, value)
        lower = np.concatenate([np.ones(services), np.full(pools + 1, -highspy.kHighsInf)])
        upper = np.concatenate([np.full(services, highspy.kHighsInf), counts, [watts]])
        none = np.zeros(0, dtype=np.int32)
        rows = services + pools + 1
        self._lp.addRows(rows, lower, upper, 0, np.zeros(rows, dtype=np.int32), none, np.zeros(0))
        # Missing a whole need must cost more than any real column, or the LP would rather miss it.
        self._lp.addCols(
            services, penalty[self.wanted] * need[self.wanted], np.zeros(services), np.ones(services), services,
            np.arange(services, dtype=np.int32), np.arange(services, dtype=np.int32), np.ones(services),
        )  # fmt: skip

    def add(self, columns: Sequence[PatternColumn]) -> int:
        """Adds columns to the LP; returns how many were new."""
        new = 0
        for column in columns:
            if column.key not in self._known:
                self._known.add(column.key)
                self.columns.append(column)
                new += 1
        return new

    def solve(self) -> ResourcePrices:
        """Solves the LP over all columns so far."""
        self._hand_over()
        self._lp.run()
        solution = self._lp.getSolution()
        dual, value = np.array(solution.row_dual), np.array(solution.col_value)
        services = len(self.wanted)
        rate = np.zeros(len(self.need))
        rate[self.wanted] = np.maximum(dual[:services], 0.0) / self.need[self.wanted]
        missing = np.zeros(len(self.need))
        missing[self.wanted] = value[:services]
        return ResourcePrices(
            float(self._lp.getInfo().objective_function_value), rate, np.maximum(-dual[services:-1], 0.0),
            value[services:], max(-float(dual[-1]), 0.0), missing,
        )  # fmt: skip

    def _hand_over(self) -> None:
        new = self.columns[self._added :]
        self._added = len(self.columns)
        if not new:
            return
        size = np.array([len(column.offers) for column in new])
        owner = np.repeat(np.arange(len(new)), size)
        services = self.service_of[np.concatenate([column.offers for column in new])]
        caps = np.concatenate([column.caps for column in new])
        rows = self.row[services]
        is_needed = rows >= 0
        part = np.minimum(caps[is_needed] / self.need[services[is_needed]], 1.0)
        pool = np.array([column.pool for column in new])
        at = np.concatenate([owner[is_needed] * (len(self.row) + 1) + rows[is_needed]])
        # several instances of one service on a GPU are one entry
        entries, place = np.unique(at, return_inverse=True)
        parts = np.bincount(place, part, minlength=len(entries)) if len(entries) else np.zeros(0)
        cost = np.array([column.cost for column in new])
        each, watts = np.arange(len(new)), np.array([column.watts for column in new])
        last = np.full(len(new), len(self.wanted) + self._pools)
        owners = np.concatenate([entries // (len(self.row) + 1), each, each])
        indices = np.concatenate([entries % (len(self.row) + 1), len(self.wanted) + pool, last])
        values = np.concatenate([np.minimum(parts, 1.0), np.ones(len(new)), watts])
        order = np.argsort(owners, kind="stable")
        starts = np.searchsorted(owners[order], np.arange(len(new)))
        self._lp.addCols(
            len(new), cost, np.zeros(len(new)), np.full(len(new), highspy.kHighsInf), len(order),
            starts.astype(np.int32), indices[order].astype(np.int32), values[order],
        )  # fmt: skip
