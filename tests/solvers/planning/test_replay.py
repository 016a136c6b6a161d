"""A plan found again by its steps is the same, whether work, seconds or a proof ended the first search."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.families import family
from solvers.planning.plan import Plan
from solvers.planning.problem import Problem
from solvers.planning.replay import replay_plan
from solvers.planning.solve import SolveBudget, find
from tests.solvers.planning.random_problems import random_problem
from tests.solvers.planning.test_workers import fleet
from tests.support.soak import scaled

SEEDS = range(scaled(60, 2))


def unbounded(plan: Plan) -> Plan:
    """Returns the plan without the bound, what describes it and the seconds."""
    assert plan.certificate
    return replace(plan, certificate=replace(plan.certificate, bound=None, method="", seconds=0.0, programme=None))


def is_found_again(problem: Problem, budget: SolveBudget) -> bool:
    found = find(problem, budget)
    return unbounded(replay_plan(problem, budget.seed, found.work, is_exact=found.is_exact)) == unbounded(found.plan)


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    "budget",
    [SolveBudget(None, 4), SolveBudget(0.1), SolveBudget(0), SolveBudget(0.1, 10_000)],
    ids=["work", "seconds", "none", "both"],
)
def test_whatever_ended_the_search(seed: int, budget: SolveBudget) -> None:
    assert is_found_again(random_problem(seed), replace(budget, seed=seed))


@pytest.mark.parametrize("seed", SEEDS)
def test_amid_the_first_dive(seed: int) -> None:
    assert is_found_again(fleet(seed), SolveBudget(0.02 * seed))


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_alone_and_in_processes_the_same_work_finds_the_same(seed: int) -> None:
    problem, budget = random_problem(seed), SolveBudget(None, 6, seed)

    def without_seconds(plan: Plan) -> Plan:
        assert plan.certificate
        return replace(plan, certificate=replace(plan.certificate, seconds=0.0))

    assert without_seconds(find(problem, budget, alone=True).plan) == without_seconds(find(problem, budget).plan)


def test_alone_there_is_no_end_by_seconds() -> None:
    with pytest.raises(ValueError, match="needs a limit of work"):
        find(random_problem(0), SolveBudget(1.0), alone=True)


@pytest.mark.slow
def test_the_exact_plan_is_found_again_by_the_steps_of_its_search() -> None:
    problem, budget = family("B", 6, 3, 2), SolveBudget(None, 4)
    assert find(problem, budget).is_exact
    assert is_found_again(problem, budget)
