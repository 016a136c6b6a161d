"""A bound at other rates: below every plan's cost there, equal to the search's own where the rates are its own."""

from __future__ import annotations

import os
from math import isclose
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.families import family
from solvers.planning import bound
from solvers.planning.duals import Duals
from solvers.planning.problem import Problem
from solvers.planning.search.tables import tables
from tests.solvers.planning.bound.test_bound import cheapest, last, problems
from tests.solvers.planning.small_fleets import fleets, least_cost

pytestmark = pytest.mark.slow

EXAMPLES = 300 if os.environ.get("GPUWRIGHT_SOAK") else 10
FACTORS = (0.1, 0.5, 0.8, 0.95, 1.0, 1.05, 1.3, 2.0, 10.0)  # of a rate


def rates_of(problem: Problem) -> dict[str, float]:
    return {name: service.rate_per_second for name, service in problem.services.items()}


def moved(problem: Problem, seed: int) -> Problem:
    """Returns the problem with other rates for some or all of its services."""
    r = Random(seed)
    rates = rates_of(problem)
    return problem.change_rates({name: rate * r.choice(FACTORS) for name, rate in rates.items() if r.random() < 0.8})


def rounded_up(cost: float) -> float:
    return cost + 1e-9 * max(1.0, cost)


def duals_of(problem: Problem, work: int = 200_000) -> Duals:
    duals = last(problem, work).duals
    assert duals
    return duals


@settings(max_examples=EXAMPLES, deadline=None)
@given(problems(), st.integers(0, 2**32 - 1), st.sampled_from([1, 20_000, 200_000]))
def test_a_bound_at_other_rates_is_never_above_the_optimum(problem: Problem, seed: int, work: int) -> None:
    duals = duals_of(problem, work)
    for shift in range(3):
        after = moved(problem, seed + shift)
        assert duals.bound(rates_of(after)) <= rounded_up(cheapest(after))


@settings(max_examples=EXAMPLES, deadline=None)
@given(fleets(), st.integers(0, 2**32 - 1))
def test_it_is_never_above_what_trying_all_sets_of_residents_finds(problem: Problem, seed: int) -> None:
    duals = duals_of(problem)
    for shift in range(3):
        after = moved(problem, seed + shift)
        assert duals.bound(rates_of(after)) <= rounded_up(least_cost(after))


@pytest.mark.parametrize("name", ["A", "D", "E", "G30"])
def test_at_its_own_rates_it_is_the_bound_of_the_search(name: str) -> None:
    problem = family(name, 12, 6, 1)
    for found in bound.rounds(tables(problem), 100_000):
        assert found.duals
        assert isclose(found.duals.bound(rates_of(problem)), found.bound, rel_tol=1e-8)
