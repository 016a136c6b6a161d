"""Sums of a plan are taken again for every other plan and problem, and only for those."""

from __future__ import annotations

from dataclasses import replace

import pytest

from app.control.formulate.tenants import sum_use_by_service, sum_use_by_tenant
from app.control.tell.rates import cost_rates
from app.control.tell.sums import add_up
from solvers.planning.solve import SolveBudget, solve
from tests.solvers.planning.random_problems import random_problem


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_sums_are_those_of_the_plan_in_hand(seed: int) -> None:
    problem = random_problem(seed)
    plan = solve(problem, SolveBudget(None, 2))
    dearer = {name: replace(node, price_per_hour=2 * node.price_per_hour) for name, node in problem.nodes.items()}
    known = add_up(problem, plan)
    assert add_up(problem, plan, known) is known
    for other, others in (
        (replace(problem, nodes=dearer), plan),
        (problem, replace(plan, instances=plan.instances[1:])),
    ):
        found = add_up(other, others, known)
        assert found.cost_rates == cost_rates(other, others)
        assert found.used == sum_use_by_tenant(other, sum_use_by_service(other, others.instances))
