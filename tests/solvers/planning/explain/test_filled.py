"""Services that a search leaves out although there is room are served next to the others, if worth the price."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.families import family
from solvers.planning.explain import fill_unserved
from solvers.planning.judge import judge
from solvers.planning.plan import Plan, Unserved
from solvers.planning.problem import Limit, Problem
from tests.solvers.planning.random_problems import random_problem
from tests.support.soak import scaled


def nobody(problem: Problem) -> Plan:
    """Returns a plan that serves nothing."""
    left = (Unserved(name, service.rate_per_second) for name, service in sorted(problem.services.items()))
    return Plan((), unserved=tuple(left))


@pytest.mark.parametrize("seed", range(0, 500, scaled(1, 25)))
def test_a_plan_that_is_filled_is_right_and_cheaper(seed: int) -> None:
    problem = replace(random_problem(seed), jobs={}, state=None)
    empty = nobody(problem)
    plan = fill_unserved(problem, empty)
    verdict = judge(problem, plan)
    assert verdict.violations == ()
    assert verdict.misstated == ()
    assert verdict.cost.total <= judge(problem, empty).cost.total
    assert fill_unserved(problem, plan) == plan
    assert {left.service for left in plan.unserved} <= set(problem.services)


def test_a_fleet_is_filled_up_to_the_limit_of_a_tenant_within_the_steps() -> None:
    problem = replace(family("A", 24, 12, 0), limits={"bench": Limit(gpus=6.0)})
    plan = fill_unserved(problem, nobody(problem))
    assert 0 < len(plan.unserved) < len(problem.services)
    assert judge(problem, plan, simulate=False).violations == ()
    assert fill_unserved(problem, nobody(problem), steps=1) == nobody(problem)
    some = fill_unserved(problem, nobody(problem), steps=200_000)
    assert len(plan.unserved) < len(some.unserved) < len(problem.services)
    assert judge(problem, some, simulate=False).violations == ()
