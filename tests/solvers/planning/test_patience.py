"""A search ends once its plan has stopped improving."""

from __future__ import annotations

import time

import pytest

from benchmarks.families import family
from solvers.planning.judge import judge
from solvers.planning.search.promise import keep
from solvers.planning.solve import SolveBudget, solve

SECONDS = 500.0


@pytest.mark.slow
def test_without_a_better_plan_a_search_ends_long_before_its_deadline() -> None:
    problem = family("A", 16, 12, 0)
    began = time.monotonic()
    plan = solve(problem, SolveBudget(seconds=SECONDS, patience_seconds=0.3))
    assert time.monotonic() - began < SECONDS / 2  # the limit of time is not what ended it
    assert judge(problem, plan, simulate=False, keeps=keep).is_right
