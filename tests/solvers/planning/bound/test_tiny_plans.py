"""On tiny problems of every family the bound is never above the cheapest of all plans of a coarse grid."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from benchmarks.families import FAMILIES, family
from solvers.planning import bound
from solvers.planning.problem import Problem
from solvers.planning.search.tables import tables
from solvers.planning.steps import RateSteps
from tests.solvers.planning.bound.tiny_plans import least_cost
from tests.support.soak import scaled

PROBLEMS = 500
STEP = PROBLEMS // scaled(PROBLEMS, PROBLEMS // 10)
WORK = 200_000


def tiny(number: int) -> Problem:
    """Returns one of the 500: one to three GPUs and services, family after family, at its load or a low one."""
    r = Random(number)
    name = FAMILIES[number // 10 % len(FAMILIES)]
    load = None if name.startswith("G") else r.choice([None, 0.2, 0.4])
    return family(name, r.randint(1, 3), r.randint(1, 3), number, load)


def rounded_up(cost: float) -> float:
    return cost + 1e-9 * max(1.0, cost)


@pytest.mark.parametrize("number", range(0, PROBLEMS, STEP))
def test_no_plan_of_a_tiny_problem_costs_less_than_the_bound(number: int) -> None:
    problem = tiny(number)
    cost, t = least_cost(problem), tables(problem)
    for found in bound.rounds(t, WORK):
        assert found.bound <= rounded_up(cost)
    rng = np.random.default_rng(number)
    counts = rng.uniform(1.05, 5, size=4)
    services = rng.integers(len(t.rate), size=4)
    steps = RateSteps(services, t.rate[services] / counts, counts - np.floor(counts), np.floor(counts) + 1)
    prices = np.concatenate([found.prices[: len(t.rate)] * rng.uniform(0, 1, len(t.rate)), rng.exponential(0.1, 4)])
    assert bound.bound_at(t, prices, steps) <= rounded_up(cost)


@pytest.mark.parametrize("number", [0, 60, 80])
def test_the_plans_tried_are_close_to_the_bound_where_they_serve_all(number: int) -> None:
    """Or a bound of nothing would pass: these problems are served at the cost of the bound, or by a GPU more."""
    problem = tiny(number)
    dearest = max(node.price_per_hour for node in problem.nodes.values())
    found = list(bound.rounds(tables(problem), WORK))[-1]
    assert found.bound >= least_cost(problem) - dearest
