"""Tiny fleets with a promised mean accuracy against all choices of a variant for each GPU."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations_with_replacement
from math import inf
from random import Random

import pytest

from solvers.latency import max_rate
from solvers.planning import bound
from solvers.planning.judge import judge
from solvers.planning.problem import Policy, Problem, Service
from solvers.planning.search.promise import keep
from solvers.planning.search.tables import tables
from solvers.planning.solve import SolveBudget, find
from tests.solvers.planning.parts.test_mixes import ACCURACIES, SERVICE, world
from tests.support.soak import scaled

PROBLEMS = 300
STEP = scaled(1, 30)
WORK = 20_000


def tiny(number: int) -> Problem:
    """Returns one of the 300: up to six GPUs for one service, which is not always worth them."""
    r = Random(number)
    promise, rate = r.uniform(0.61, 0.8), r.uniform(20, 500)
    unserved, weight = r.choice([1000.0, 0.01]), r.choice([1.0, 0.1])
    return replace(
        world(promise, rate, r.randint(1, 3)),
        policy=Policy(pricing="gpu", unserved_price=unserved, money_weight=weight),
    )


def cheapest(problem: Problem) -> float:
    """Returns the least cost: one instance a GPU at all of its SMs, which no other choice of SM% exceeds."""
    service, policy = problem.services[SERVICE], problem.policy
    gpus = sum(node.gpu_count for node in problem.nodes.values())
    price = next(iter(problem.nodes.values())).price_per_hour * policy.money_weight
    best = inf
    for count in range(gpus + 1):
        for variants in combinations_with_replacement(ACCURACIES, count):
            rest = service.rate_per_second - most_served(problem, service, variants)
            missed = policy.unserved_price * service.priority / 100 * max(rest, 1.0)
            best = min(best, count * price + (missed if rest > 1e-5 * service.rate_per_second else 0.0))
    return best


def most_served(problem: Problem, service: Service, variants: tuple[str, ...]) -> float:
    """Returns the most that these instances serve at the promised mean: of the less accurate, the best come first."""
    policy, gaps = problem.policy, {name: value - service.mean_accuracy for name, value in ACCURACIES.items()}
    carried = {}
    for name in set(variants):
        exec_ms = problem.profiles["m", name, "g"].latency_ms[1][-1][1]
        by_slo, _ = max_rate(1, exec_ms * (1 + policy.exec_margin), service.slo_ms, service.percentile)
        carried[name] = min(by_slo, policy.utilization * 1000 / exec_ms)
    served = spare = 0.0
    for name in sorted(variants, key=lambda name: -gaps[name]):
        rate = carried[name] if gaps[name] >= 0 else min(carried[name], spare / -gaps[name])
        served, spare = served + rate, spare + rate * gaps[name]
    return min(served, service.rate_per_second)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(0, PROBLEMS, STEP))
def test_no_choice_of_variants_costs_less_than_the_bound_and_every_plan_keeps_the_promise(number: int) -> None:
    problem = tiny(number)
    least = cheapest(problem)
    for found in bound.rounds(tables(problem), WORK):
        assert found.bound <= least * (1 + 1e-9)
    plan = find(problem, SolveBudget(None, 8), alone=True).plan
    assert judge(problem, plan, keeps=keep).violations == ()
    assert plan.certificate and plan.certificate.bound is not None
    assert plan.certificate.bound <= least * (1 + 1e-9)
    assert plan.certificate.cost.total >= least * (1 - 1e-9)
