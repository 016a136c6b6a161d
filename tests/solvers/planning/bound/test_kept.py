"""A search that goes on where another has ended: never above a plan's cost, and near its end from the beginning."""

from __future__ import annotations

import os
from dataclasses import replace
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.control.domain.decision import SolverAnswer
from app.control.solve.orders import Solve
from app.control.solve.serving import Serving
from benchmarks.families import FAMILIES, family
from solvers.planning import bound
from solvers.planning.kept_search import KeptSearch
from solvers.planning.problem import Problem
from solvers.planning.search.tables import tables
from solvers.planning.solve import SolveBudget, solve
from tests.solvers.planning.bound.test_bound import cheapest, problems
from tests.solvers.planning.bound.test_duals import moved, rounded_up
from tests.solvers.planning.bound.tiny_plans import least_cost
from tests.support.soak import scaled

pytestmark = pytest.mark.slow

EXAMPLES = 300 if os.environ.get("GPUWRIGHT_SOAK") else 10
STEP = scaled(2, 60)
WORK = 200_000


def kept_of(problem: Problem, work: int = WORK) -> KeptSearch:
    found = list(bound.rounds(tables(problem), work))[-1].kept
    assert found
    return found


def drifted(problem: Problem, share: float) -> Problem:
    r = Random(1)
    return problem.change_rates(
        {name: service.rate_per_second * r.uniform(1 - share, 1 + share) for name, service in problem.services.items()}
    )


@settings(max_examples=EXAMPLES, deadline=None)
@given(problems(), st.integers(0, 2**32 - 1), st.sampled_from([1, 20_000, 200_000]))
def test_it_is_never_above_the_optimum_at_other_rates(problem: Problem, seed: int, work: int) -> None:
    kept = list(bound.rounds(tables(problem), work))[-1].kept
    after = problem
    for shift in range(3):
        after = moved(after, seed + shift)
        cost = rounded_up(cheapest(after))
        for found in bound.rounds(tables(after), WORK, kept):
            assert found.bound <= cost
        kept = found.kept or kept


@pytest.mark.parametrize("number", range(0, 500, STEP))
def test_it_is_never_above_a_plan_of_any_family(number: int) -> None:
    r = Random(number)
    name = FAMILIES[number // 10 % len(FAMILIES)]
    problem = family(name, r.randint(1, 3), r.randint(1, 3), number)
    kept = list(bound.rounds(tables(problem), WORK))[-1].kept
    after = moved(problem, number)
    cost = rounded_up(least_cost(after))
    for found in bound.rounds(tables(after), WORK, kept):
        assert found.bound <= cost


def test_it_is_never_above_a_plan_where_profiles_press_on_bandwidth_from_now_on() -> None:
    """Classes that were divided by pressure on compute alone would leave out all GPUs with pressure on bandwidth."""
    before = family("A", 12, 5, 3)
    kept = kept_of(before)
    assert any(len(classes.edges) > 2 for classes in kept.classes)
    profiles = {
        key: replace(
            profile,
            demand=replace(
                profile.demand, pressure=tuple((sm, value * complex(1, 3)) for sm, value in profile.demand.pressure)
            ),
        )
        for key, profile in before.profiles.items()
    }
    after = replace(before, profiles=profiles)
    certificate = solve(after, SolveBudget(seconds=60.0, work=20)).certificate
    assert certificate
    assert all(found.bound <= rounded_up(certificate.cost.total) for found in bound.rounds(tables(after), WORK, kept))


def test_its_first_bound_is_near_what_a_search_from_nothing_proves_at_last() -> None:
    before, after = family("A", 40, 20, 3), drifted(family("A", 40, 20, 3), 0.02)
    cold = [found.bound for found in bound.rounds(tables(after), 5 * WORK)]
    warm = [found.bound for found in bound.rounds(tables(after), WORK, kept_of(before, 5 * WORK))]
    assert warm[0] >= 0.96 * cold[-1] > cold[0]
    assert warm[-1] >= 0.98 * cold[-1]


def test_it_keeps_rows_classes_and_columns_with_residents_for_each() -> None:
    problem = family("A", 12, 8, 1)
    kept = kept_of(problem)
    assert kept.services == tuple(tables(problem).services)
    assert len(kept.prices) == len(kept.services) + len(kept.steps)
    assert len(kept.columns.offers) == len(kept.columns.sms) == len(kept.columns.is_all) == kept.columns.start[-1]
    assert all((np.diff(classes.edges) > 0).all() for classes in kept.classes)
    assert all(len(classes.edges) == len(classes.own) + 1 for classes in kept.classes)


def test_of_other_services_it_begins_from_nothing() -> None:
    problem = family("A", 12, 8, 1)
    fewer = replace(problem, services=dict(list(problem.services.items())[1:]))
    kept = kept_of(problem)
    first, from_nothing = (next(iter(bound.rounds(tables(fewer), WORK, each))) for each in (kept, None))
    assert first.bound == from_nothing.bound


def test_a_solver_that_remembers_finds_the_same_plan_and_a_higher_bound() -> None:
    serving = Serving()
    before, after = family("A", 40, 20, 3), drifted(family("A", 40, 20, 3), 0.02)
    serving.answer(Solve(before, None, 20))
    answers = [solver.answer(Solve(after, None, 6)) for solver in (serving, Serving())]
    warm, cold = (answer.plan for answer in answers if isinstance(answer, SolverAnswer) and answer.plan)
    assert warm.instances == cold.instances
    assert warm.certificate
    assert cold.certificate
    assert (warm.certificate.bound or 0.0) > (cold.certificate.bound or 0.0)
