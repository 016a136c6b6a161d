"""Objects that are pickled by their values come back equal, and through the checks of their class."""

from __future__ import annotations

import pickle
from dataclasses import dataclass

import pytest

from app.control.solve.orders import Follow, Prepare, Solve
from app.worker.values import pickle_by_values
from solvers.planning.solve import SolveBudget, solve
from tests.solvers.planning.random_problems import random_problem


@dataclass(frozen=True, slots=True)
class Even:
    """A number that its class checks."""

    number: int
    name: str = ""

    def __post_init__(self) -> None:
        if self.number % 2:
            raise ValueError(f"{self.number} is odd")


def test_what_comes_back_is_equal_and_was_checked() -> None:
    pickle_by_values(Even)
    assert pickle.loads(pickle.dumps([Even(2, "two"), Even(4)])) == [Even(2, "two"), Even(4)]
    odd = Even(6)
    object.__setattr__(odd, "number", 7)
    with pytest.raises(ValueError, match="7 is odd"):
        pickle.loads(pickle.dumps(odd))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
def test_orders_arrive_as_they_were_sent(seed: int) -> None:
    problem = random_problem(seed)
    plan = solve(problem, SolveBudget(None, 2))
    for order in (Solve(problem, 1.0, None), Prepare(problem, plan, 3), Follow({"a": 1.0})):
        assert pickle.loads(pickle.dumps(order, pickle.HIGHEST_PROTOCOL)) == order
