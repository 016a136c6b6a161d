"""Integer programmes, solved by HiGHS with counted work, so that every machine finds the same answer."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from math import inf

import highspy
import numpy as np

HAS_SOLUTION = 2  # HiGHS' status of a solution that keeps all rows


@dataclass(frozen=True, slots=True)
class ProgramSolution:
    """The best values found, and a bound on the cost of any."""

    values: list[float]
    bound: float


class IntegerProgram:
    """Collects variables from 0 up, and rows, of a cost to be minimised."""

    def __init__(self) -> None:
        self._cost: list[float] = []
        self.upper: list[float] = []
        self._is_whole: list[bool] = []
        self._rows: list[tuple[dict[int, float], float, float]] = []

    def variable(self, cost: float, upper: float = inf, *, is_whole: bool = False) -> int:
        """Adds a variable; returns its number."""
        self._cost.append(cost)
        self.upper.append(upper)
        self._is_whole.append(is_whole)
        return len(self._cost) - 1

    def row(self, terms: Iterable[tuple[int, float]], least: float = -inf, most: float = inf) -> None:
        """Adds limits of a sum of variables, each times its factor."""
        added: dict[int, float] = defaultdict(float)
        for variable, factor in terms:
            added[variable] += factor
        self._rows.append((added, least, most))

    def solve(self, most_nodes: int, gap_share: float, most_seconds: float = inf) -> ProgramSolution | None:
        """Returns the best solution of so many nodes; None if they have none."""
        if not self._cost:
            return None
        h = highspy.Highs()
        h.setOptionValue("output_flag", False)
        h.setOptionValue("threads", 1)
        h.setOptionValue("mip_rel_gap", gap_share)
        h.setOptionValue("mip_max_nodes", most_nodes)
        h.setOptionValue("time_limit", most_seconds)
        lp, count = highspy.HighsLp(), len(self._cost)
        lp.num_col_, lp.num_row_ = count, len(self._rows)
        lp.col_cost_ = np.array(self._cost)
        lp.col_lower_, lp.col_upper_ = np.zeros(count), np.array(self.upper, dtype=np.float64)
        lp.row_lower_ = np.array([least for _, least, _ in self._rows])
        lp.row_upper_ = np.array([most for _, _, most in self._rows])
        kinds = highspy.HighsVarType
        lp.integrality_ = [kinds.kInteger if is_whole else kinds.kContinuous for is_whole in self._is_whole]
        lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        lp.a_matrix_.start_ = np.cumsum([0, *(len(terms) for terms, _, _ in self._rows)])
        lp.a_matrix_.index_ = np.array([at for terms, _, _ in self._rows for at in terms], dtype=np.int32)
        lp.a_matrix_.value_ = np.array([value for terms, _, _ in self._rows for value in terms.values()])
        h.passModel(lp)
        h.run()
        info = h.getInfo()
        if info.primal_solution_status != HAS_SOLUTION:
            return None
        return ProgramSolution(list(h.getSolution().col_value), float(info.mip_dual_bound))
