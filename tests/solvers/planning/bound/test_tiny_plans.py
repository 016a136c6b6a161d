"""On tiny problems of every family the bound is never above the cheapest of all plans of a coarse grid."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from random import Random

import numpy as np
import pytest

from benchmarks.families import FAMILIES, family
from solvers.planning import bound, exact
from solvers.planning.bound import search
from solvers.planning.problem import Problem
from solvers.planning.search.tables import tables
from solvers.planning.steps import LARGE_SHARE, RateSteps
from tests.solvers.planning.bound.compiled_steps import rounded
from tests.solvers.planning.bound.proved import bound_at
from tests.solvers.planning.bound.tiny_plans import least_cost
from tests.support.soak import scaled

pytestmark = pytest.mark.slow

PROBLEMS = 500
STEP = scaled(1, 30)  # every day 17 of them, of each family
WORK = 200_000


def tiny(number: int) -> Problem:
    """Returns one of the 500: one to three GPUs and services, family after family, at its load or a low one."""
    r = Random(number)
    name = FAMILIES[number // 10 % len(FAMILIES)]
    load = None if name.startswith("G") else r.choice([None, 0.2, 0.4])
    return family(name, r.randint(1, 3), r.randint(1, 3), number, load)


@cache
def least_of_tiny(number: int) -> float:
    return least_cost(tiny(number))


def rounded_up(cost: float) -> float:
    return cost + 1e-9 * max(1.0, cost)


@pytest.mark.parametrize("number", range(0, PROBLEMS, STEP))
def test_no_plan_of_a_tiny_problem_costs_less_than_the_bound(number: int) -> None:
    cost, t = least_of_tiny(number), tables(tiny(number))
    for found in bound.rounds(t, WORK):
        assert found.bound <= rounded_up(cost)
    rng = np.random.default_rng(number)
    counts = rng.uniform(1.05, 5, size=4)
    services = rng.integers(len(t.rate), size=4)
    steps = RateSteps.of_rates(services, t.rate[services] / counts, counts - np.floor(counts), np.floor(counts) + 1)
    prices = np.concatenate([found.prices[: len(t.rate)] * rng.uniform(0, 1, len(t.rate)), rng.exponential(0.1, 4)])
    assert bound_at(t, prices, steps) <= rounded_up(cost)


@pytest.mark.parametrize("number", range(0, PROBLEMS, STEP))
def test_the_plans_tried_are_close_to_the_bound_where_they_serve_all(number: int) -> None:
    """Or a bound of nothing would pass: what is served whole is served at the cost of the bound, or by a GPU more."""
    problem, cost = tiny(number), least_of_tiny(number)
    prices = [node.price_per_hour for node in problem.nodes.values()]
    if cost <= sum(node.price_per_hour * node.gpu_count for node in problem.nodes.values()):
        found = list(bound.rounds(tables(problem), WORK))[-1]
        assert found.bound >= cost - max(prices)


def in_two(number: int) -> Problem:
    """Returns one of the 500, its load low, with shares paid for and two instances of every service."""
    r = Random(number)
    name = FAMILIES[number // 10 % len(FAMILIES)]
    problem = family(
        name, r.randint(2, 3), r.randint(1, 2), number, None if name.startswith("G") else r.choice([0.1, 0.3])
    )
    services = {name: replace(service, min_instances=2) for name, service in problem.services.items()}
    policy = replace(problem.policy, pricing=r.choice(["share", "gpu"]), share_pressure=r.choice([0.0, 0.5, 1.0]))
    return replace(problem, services=services, policy=policy)


@cache
def least_in_two(number: int) -> float:
    return least_cost(in_two(number))


@pytest.mark.parametrize("number", range(0, PROBLEMS, STEP))
def test_no_plan_with_two_instances_of_each_service_costs_less_than_the_bound(number: int) -> None:
    cost, t = least_in_two(number), tables(in_two(number))
    for found in bound.rounds(t, WORK):
        assert found.bound <= rounded_up(cost)
    two = np.array([service for service in range(len(t.rate)) if not t.is_dedicated[service]], dtype=np.int64)
    ones = np.ones(len(two))
    steps = RateSteps.of_rates(two, -t.rate[two], ones, 2 * LARGE_SHARE * ones)
    rng = np.random.default_rng(number)
    prices = np.concatenate(
        [found.prices[: len(t.rate)] * rng.uniform(0, 1, len(t.rate)), rng.exponential(0.3, len(two))]
    )
    assert bound_at(t, prices, steps) <= rounded_up(cost)


@pytest.mark.parametrize("number", range(0, PROBLEMS, STEP))
def test_a_search_whose_work_ends_amid_a_look_has_a_bound_all_the_same(
    monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    monkeypatch.setattr(search, "LATE_WORK", 0)
    for problem, cost in ((tiny(number), least_of_tiny(number)), (in_two(number), least_in_two(number))):
        for work in (1, 1_000):
            for found in bound.rounds(tables(problem), work):
                assert found.bound <= rounded_up(cost)


@pytest.mark.parametrize("number", range(0, PROBLEMS, STEP))
def test_no_plan_costs_less_than_the_exact_search_proves(number: int) -> None:
    is_plain = number % 20 != 0
    problem = tiny(number) if is_plain else replace(in_two(number), policy=tiny(number).policy)
    t = tables(problem)
    if exact.applies(t):
        cost, last = least_of_tiny(number) if is_plain else least_cost(problem), 0.0
        for found in bound.rounds(t, 2_000):
            last = found.bound
        for least in (0.0, last):
            for proof in exact.prove(t, 3_000, least):
                assert proof.bound <= rounded_up(cost)


def test_two_large_instances_fill_two_steps_however_many_others_there_are() -> None:
    rng = np.random.default_rng(0)
    for _ in range(20_000):
        count = int(rng.integers(2, 9))
        rates = rng.dirichlet(np.full(count, rng.choice([0.1, 0.5, 2.0]))) if count > 2 else rng.dirichlet([0.3, 0.3])
        second = np.sort(rates)[-2]
        if second < 1 / (2 * count):  # give it half an even share, of what the largest has
            rates[np.argsort(rates)[-2:]] += [1 / (2 * count) - second, second - 1 / (2 * count)]
        rates = rates[rates > 0]
        assert np.sort(rates)[-2] >= 1 / (2 * count) - 1e-12
        assert sum(rounded(rate, -1.0, 1.0) for rate in rates) >= 2 * LARGE_SHARE
