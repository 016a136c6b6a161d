"""HetSev's greedy in the large gives right plans, so that comparing costs means something."""

from __future__ import annotations

import pytest

from benchmarks.families import family, multiply_gpus
from lab.published import hetsev
from lab.published.queues import BUFFER_INSTANCES, fair_order
from solvers.planning.judge import judge


@pytest.mark.parametrize("name", ["A", "B"])
def test_its_plan_is_right_by_the_judge_and_its_simulation(name: str) -> None:
    problem = multiply_gpus(family(name, 8, 4, 2), 4)
    verdict = judge(problem, hetsev.solve(problem))
    assert verdict.violations == ()
    assert verdict.cost.unserved == 0


@pytest.mark.slow
def test_what_a_crowded_fleet_cannot_hold_is_left_unserved_by_its_name() -> None:
    problem = family("A", 20, 10, 0, load=0.95)
    plan = hetsev.solve(problem)
    assert plan.unserved
    assert judge(problem, plan, simulate=False).violations == ()


def test_every_instance_is_in_the_fair_order_once_and_a_long_queue_goes_first() -> None:
    instances = [(1.0, 0)] * 90 + [(8.0, 1)] * 10
    order = fair_order(instances, 2)
    assert sorted(order) == list(range(100))
    first = order[: 2 * BUFFER_INSTANCES]
    assert sum(number < 90 for number in first) > sum(number >= 90 for number in first) > 0
