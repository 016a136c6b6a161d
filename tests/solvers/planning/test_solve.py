"""`solve` gives an answer within any budget, the same for the same input, and a bound below its cost."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from benchmarks.families import family
from solvers.planning.fleet.offers import NO_GPU
from solvers.planning.judge import judge
from solvers.planning.plan import Plan
from solvers.planning.problem import Problem, Service
from solvers.planning.solve import SearchStatus, SolveBudget, solve
from tests.solvers.planning.random_problems import random_problem
from tests.support.soak import scaled

SEEDS = range(scaled(60, 2))


def permuted(problem: Problem, seed: int) -> Problem:
    """Returns the same problem with its parts in another order."""
    r = Random(seed)

    def shuffled(parts: dict[object, object]) -> dict[object, object]:
        names = list(parts)
        r.shuffle(names)
        return {name: parts[name] for name in names}

    parts = ("gpu_types", "nodes", "models", "profiles", "services", "jobs", "limits")
    return replace(problem, **{part: shuffled(getattr(problem, part)) for part in parts})  # type: ignore[arg-type]


def without_seconds(plan: Plan) -> Plan:
    """Returns the plan without the seconds it took."""
    assert plan.certificate
    return replace(plan, certificate=replace(plan.certificate, seconds=0.0))


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_without_a_budget_there_is_still_an_answer(seed: int) -> None:
    problem = random_problem(seed)
    plan = solve(problem, SolveBudget(seconds=0))
    assert judge(problem, plan).violations == ()


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_with_work_two_runs_and_another_order_are_equal(seed: int) -> None:
    problem = random_problem(seed)
    budget = SolveBudget(seconds=None, work=4, seed=seed)
    plan = without_seconds(solve(problem, budget))
    assert without_seconds(solve(problem, budget)) == plan
    assert without_seconds(solve(permuted(problem, seed), budget)) == plan


def test_an_empty_problem_has_an_empty_plan() -> None:
    plan = solve(Problem({}, {}, {}, {}, {}))
    assert (plan.instances, plan.jobs, plan.unserved, plan.warnings, plan.releasable) == ((), (), (), (), ())
    assert plan.certificate
    assert plan.certificate.cost.total == 0


def test_without_services_every_node_may_go() -> None:
    problem = replace(random_problem(0), services={}, jobs={}, state=None)
    plan = solve(problem, SolveBudget(seconds=0))
    assert {entry.node for entry in plan.releasable} == set(problem.nodes)


def test_without_nodes_nothing_is_served_and_the_reason_says_so() -> None:
    service = Service("shop/a", "shop", "m", ("v",), 80, 98, 50)
    plan = solve(Problem({}, {}, {"m": ()}, {}, {"shop/a": service}))
    assert [(unserved.rate_per_second, unserved.reason) for unserved in plan.unserved] == [(50, NO_GPU)]


@pytest.mark.slow
def test_who_watches_hears_of_the_first_plan_and_of_nothing_dearer() -> None:
    heard: list[SearchStatus] = []
    plan = solve(random_problem(3), SolveBudget(seconds=None, work=6), heard.append)
    assert plan.certificate
    costs = [status.cost for status in heard]
    assert costs == sorted(costs, reverse=True)
    assert heard[-1].serves_all == (not plan.unserved)


@pytest.mark.slow
def test_a_certificate_tells_what_its_programme_costs() -> None:
    plan = solve(family("A", 12, 14, 0), SolveBudget(seconds=None, work=20))
    certificate = plan.certificate
    assert certificate and certificate.bound is not None and certificate.programme is not None
    assert certificate.bound <= certificate.programme <= certificate.cost.total


def test_the_method_says_what_the_bound_leaves_out() -> None:
    certificate = solve(family("E", 24, 8, 1), SolveBudget(seconds=None, work=1)).certificate
    assert certificate
    assert certificate.bound
    assert f"; bound {certificate.bound:.6g}" in certificate.method
    assert certificate.method.endswith("ignoring memory beyond the smallest batch, the power budget, maxW")
