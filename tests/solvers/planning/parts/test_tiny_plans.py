"""Tiny problems with rules of availability against all plans of a coarse grid: bound and plan keep their words."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from random import Random
from typing import Literal

import numpy as np
import pytest

from benchmarks.families import FAMILIES, family
from solvers.planning import bound
from solvers.planning.availability import Availability
from solvers.planning.bound.fleet import fleet
from solvers.planning.bound.rounding import surviving_nodes
from solvers.planning.judge import judge
from solvers.planning.parts.bound import relax_to_needed
from solvers.planning.plan import Plan
from solvers.planning.problem import Node, Problem, Service
from solvers.planning.search.promise import keep
from solvers.planning.search.tables import tables
from solvers.planning.solve import SolveBudget, find
from tests.solvers.planning.bound.proved import bound_at
from tests.solvers.planning.parts.tiny_plans import cheapest
from tests.solvers.planning.without_bound import plan_without_bound
from tests.support.soak import scaled

PROBLEMS = 500
STEP = scaled(1, 30)  # every day 17 of them, of each family
WORK = 200_000
WORK_OF_PLANS = 4
SPOT_PRICE_SHARE = 0.4
FACTORS = (0.3, 0.8, 1.0, 1.3, 2.0)  # of a rate


@cache
def tiny(number: int) -> Problem:
    """Returns one of the 500: two to four GPUs on nodes of one or two, in two regions, bought in several ways."""
    r = Random(number)
    name = FAMILIES[number // 10 % len(FAMILIES)]
    load = None if name.startswith("G") else r.choice([0.1, 0.2, 0.4])
    made = family(name, r.randint(2, 4), r.randint(1, 2), number, load)
    nodes = {node.name: node for old in made.nodes.values() for node in _split(r, old)}
    services = {name: _asking(r, service) for name, service in made.services.items()}
    policy = replace(made.policy, pricing="gpu", power_budget_w=None)
    return replace(made, nodes=nodes, services=services, policy=policy)


def _split(r: Random, node: Node) -> list[Node]:
    """Returns nodes of one or two GPUs instead of one of several."""
    found: list[Node] = []
    left = node.gpu_count
    while left:
        gpus = min(left, r.randint(1, 2))
        left -= gpus
        purchase: Literal["onDemand", "owned", "spot"] = r.choice(["onDemand", "onDemand", "owned", "spot"])
        price = node.price_per_hour * (SPOT_PRICE_SHARE if purchase == "spot" else 1)
        found.append(
            replace(
                node,
                name=f"{node.name}-{len(found)}",
                gpus=tuple(range(gpus)),
                purchase=purchase,
                price_per_hour=price,
                region=r.choice(["north", "south"]),
                pricing="node" if purchase in ("onDemand", "spot") and r.random() < 0.3 else "gpu",
            )
        )
    return found


def _asking(r: Random, service: Service) -> Service:
    rules = Availability(r.choice(["gpu", "node", "region"]), r.choice([0, 1, 1]), r.choice([1.0, 1.0, 0.5, 0.3, 0.0]))
    return replace(service, availability=rules, min_instances=r.choice([1, 1, 2]))


@cache
def cheapest_of_tiny(number: int) -> tuple[float, Plan]:
    return cheapest(tiny(number))


@cache
def rounds_of_tiny(number: int) -> list[bound.Round]:
    return list(bound.rounds(tables(relax_to_needed(tiny(number))), WORK))


def rounded_up(cost: float) -> float:
    return cost + 1e-9 * max(1.0, cost)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(0, PROBLEMS, STEP))
def test_no_plan_that_keeps_the_rules_costs_less_than_the_bound(number: int) -> None:
    problem = tiny(number)
    cost, tried = cheapest_of_tiny(number)
    assert judge(problem, tried, simulate=False, keeps=keep).violations == ()
    for found in rounds_of_tiny(number):
        assert found.bound <= rounded_up(cost)
    plan = find(problem, SolveBudget(None, WORK_OF_PLANS), alone=True).plan
    assert plan.certificate
    assert judge(problem, plan, keeps=keep).violations == ()
    assert plan.certificate.bound is None or plan.certificate.bound <= min(cost, plan.certificate.cost.total) * (
        1 + 1e-9
    )


@pytest.mark.slow
@pytest.mark.parametrize("number", range(0, PROBLEMS, STEP))
def test_no_plan_costs_less_than_any_prices_of_what_is_left_prove(number: int) -> None:
    problem = tiny(number)
    cost, t, rng = cheapest_of_tiny(number)[0], tables(relax_to_needed(problem)), np.random.default_rng(number)
    rows = surviving_nodes(fleet(t))
    found = rounds_of_tiny(number)[-1]
    for scale in (0.01, 0.1):
        of_rates = found.prices[: len(t.rate)] * rng.uniform(0, 1, len(t.rate))
        prices = np.concatenate([of_rates, rng.exponential(scale, len(rows))])
        assert bound_at(t, prices, rows) <= rounded_up(cost)


@pytest.mark.slow
@pytest.mark.parametrize("number", [72, 152, 236, 264, 388, 468])
def test_rates_of_the_whole_service_go_by_its_rules_and_not_by_those_of_its_parts(number: int) -> None:
    """Losing a node leaves more than losing a zone; and the largest instances may carry more than their parts need."""
    plan = plan_without_bound(tiny(number), WORK_OF_PLANS)
    assert plan.unserved == ()
    assert judge(tiny(number), plan, simulate=False, keeps=keep).violations == ()


@pytest.mark.slow
@pytest.mark.parametrize("number", range(0, PROBLEMS, 5 * STEP))
def test_a_kept_bound_is_no_more_than_a_plan_at_other_rates(number: int) -> None:
    problem, r = tiny(number), Random(number)
    found = rounds_of_tiny(number)[-1]
    assert found.duals
    for _ in range(3):
        rates = {name: s.rate_per_second * r.choice(FACTORS) for name, s in problem.services.items()}
        assert found.duals.bound(rates) <= rounded_up(cheapest(problem.change_rates(rates))[0])
