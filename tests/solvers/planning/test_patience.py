"""A search ends once its plan has stopped improving."""

from __future__ import annotations

import pytest

from benchmarks.families import family
from solvers.planning.judge import judge
from solvers.planning.search.promise import keep
from solvers.planning.solve import SolveBudget, solve


@pytest.mark.slow
def test_a_search_without_a_deadline_ends_once_it_finds_no_better_plan() -> None:
    problem = family("A", 16, 12, 0)
    plan = solve(problem, SolveBudget(seconds=None, patience_seconds=0.3))
    assert judge(problem, plan, simulate=False, keeps=keep).is_right
