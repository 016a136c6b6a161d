"""What a worker has been sent lately is only named; whatever it gets equals what was sent."""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.control.solve.orders import FindBatches, MakeBatches, Solve
from app.worker.kept import MOST_KEPT, KeptObjects
from solvers.planning.plan import Plan
from solvers.planning.problem import Problem
from solvers.planning.solve import SolveBudget, solve
from tests.solvers.planning.random_problems import random_problem

PROBLEMS = [random_problem(seed) for seed in range(2 * MOST_KEPT)]


@given(st.lists(st.sampled_from(PROBLEMS), max_size=12))
def test_orders_come_back_equal_whatever_was_sent_before(problems: list[Problem]) -> None:
    kept = KeptObjects(Problem)
    for problem in problems:
        order = Solve(problem, 1.0, None)
        assert pickle.loads(kept.pickle_order(order)) == order


@pytest.mark.slow
def test_orders_about_one_plan_send_it_once() -> None:
    problem = random_problem(0)
    plan, kept = solve(problem, SolveBudget(None, 2, 0)), KeptObjects(Problem, Plan)
    first = kept.pickle_order(FindBatches(problem, plan, (), 1, 0))
    second = kept.pickle_order(MakeBatches(problem, plan, ()))
    got: list[Any] = [pickle.loads(first), pickle.loads(second)]
    assert len(second) < len(first) / 10
    assert got[1].problem is got[0].problem
    assert got[1].plan is got[0].plan


def test_an_equal_object_that_is_another_one_is_sent_itself() -> None:
    problem, kept = random_problem(0), KeptObjects(Problem)
    other = replace(problem)
    assert (
        len(kept.pickle_order([problem])) == len(kept.pickle_order([other])) > len(kept.pickle_order([other, problem]))
    )
