"""Every planner leaves jobs that must stay where they run, and gives each instance a name of its own."""

from __future__ import annotations

from dataclasses import replace

import pytest

from solvers.planners.ask import DRAFTERS, find_plan
from solvers.planning.judge import judge
from solvers.planning.problem import Problem
from solvers.planning.solve import SolveBudget
from tests.solvers.planning.busy_fleets import busy_fleet

FEW = SolveBudget(seconds=None, work=5)


def unlimited(seed: int, energy_price: float, same_model: int = 1) -> Problem:
    """Returns a fleet in which watts limit nothing."""
    problem = busy_fleet(seed)
    policy = replace(
        problem.policy, power_budget_w=None, energy_price_per_kwh=energy_price, same_model_per_gpu=same_model
    )
    return replace(problem, policy=policy, gpu_types={"gpu": replace(problem.gpu_types["gpu"], max_w=2000.0)})


@pytest.mark.slow
@pytest.mark.parametrize("planner", sorted(DRAFTERS))
@pytest.mark.parametrize("energy_price", [0.0, 0.3])
def test_jobs_that_must_stay_leave_every_planner_a_plan(planner: str, energy_price: float) -> None:
    for seed in range(12):
        problem = unlimited(seed, energy_price)
        plan = find_plan(problem, planner, FEW, alone=True, bounds=False).plan
        assert judge(problem, plan).is_right


@pytest.mark.slow
@pytest.mark.parametrize("planner", sorted(DRAFTERS))
def test_no_two_instances_have_one_name(planner: str) -> None:
    for seed in range(12):
        plan = find_plan(unlimited(seed, 0.0, same_model=2), planner, FEW, alone=True, bounds=False).plan
        names = [line.id for line in plan.instances]
        assert len(set(names)) == len(names)
