"""A fresh plan is the cheapest right one that is known, and no dearer than the bound allows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest

from app.control.formulate.problem import build_problem
from simulation.measure.fresh import FreshCost, bare_problem, cheapest, search_fresh, serves_all, set_rates
from solvers.planning.plan import Plan
from solvers.planning.problem import Problem
from solvers.planning.solve import SolveBudget, find
from tests.simulation.worlds import small

PROBLEM = build_problem(small())
DOUBLE = {name: 2 * service.rate_per_second for name, service in PROBLEM.services.items()}


def solved(work: int = 2) -> Plan:
    return find(PROBLEM, SolveBudget(None, work, 0), alone=True).plan


def found_beside(known: Iterable[Plan], problem: Problem = PROBLEM, work: int = 1) -> FreshCost:
    return cheapest(problem, search_fresh(problem, work, 0), known)


@pytest.mark.slow
def test_a_fresh_plan_is_no_cheaper_than_its_bound() -> None:
    found = found_beside((), work=2)
    assert 0 < found.bound_per_hour <= found.per_hour
    assert serves_all(PROBLEM, found.plan)


@pytest.mark.slow
def test_a_cheaper_plan_that_is_known_counts_and_a_wrong_one_does_not() -> None:
    plan = solved()
    kept = plan.instances[0]
    crowded = replace(plan, instances=tuple(replace(line, node=kept.node, gpu=kept.gpu) for line in plan.instances))
    assert not serves_all(PROBLEM, crowded)
    assert found_beside([crowded]).per_hour == found_beside(()).per_hour
    # At half the rates, the plan for the whole rates is right, too, and may be the best that is known.
    half = bare_problem(PROBLEM, {name: rate / 4 for name, rate in DOUBLE.items()})
    smaller = set_rates(half, plan)
    assert smaller
    assert serves_all(half, smaller)
    assert found_beside([plan], half).per_hour <= plan.certificate.cost.total  # type: ignore[union-attr]


@pytest.mark.slow
def test_a_plan_at_other_rates_divides_each_service_as_before() -> None:
    plan = solved()
    doubled = set_rates(bare_problem(PROBLEM, DOUBLE), plan)
    assert doubled
    assert [line.rate_per_second for line in doubled.instances] == pytest.approx(
        [2 * line.rate_per_second for line in plan.instances]
    )
    services = {line.service for line in plan.instances}
    without = Plan(tuple(line for line in plan.instances if line.service != min(services)))
    assert set_rates(PROBLEM, without) is None
    assert not serves_all(PROBLEM, without)


def test_jobs_energy_and_what_runs_are_left_out() -> None:
    policy = replace(PROBLEM.policy, energy_price_per_kwh=10.0)
    bare = bare_problem(replace(PROBLEM, policy=policy))
    assert (dict(bare.jobs), bare.policy.energy_price_per_kwh, bare.state) == ({}, 0.0, None)


@pytest.mark.slow
def test_where_no_plan_serves_everything_only_gpus_are_priced() -> None:
    beyond = bare_problem(PROBLEM, {name: 100 * rate for name, rate in DOUBLE.items()})
    found = found_beside((), beyond)
    assert found.plan.unserved
    assert 0 <= found.bound_per_hour <= found.per_hour <= 4 * 1.2 + 1e-9
