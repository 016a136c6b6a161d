"""A search for a bound ends soon after its limit of work, also amid a look that would take a thousand times as long."""

from __future__ import annotations

import pytest

from solvers.planning import bound
from solvers.planning.bound import search
from solvers.planning.search.tables import tables
from tests.solvers.planning.random_problems import random_problem

LONG = 8  # a seed: to look once at its first prices takes ten million steps
LEAST_COST = 22.9949  # that a look to its end proves, thrice that number of steps later


@pytest.mark.parametrize("work", [1, 60_000])
def test_a_look_ends_soon_after_the_limit_of_work(monkeypatch: pytest.MonkeyPatch, work: int) -> None:
    monkeypatch.setattr(search, "LATE_WORK", 50_000)
    found = list(bound.rounds(tables(random_problem(LONG)), work))
    assert found[-1].work < work + 150_000, "one class more was searched, at most"
    assert 0 < found[-1].bound <= LEAST_COST
