"""Morak's plan keeps the fleet's budget of watts also where jobs run that must stay."""

from __future__ import annotations

from dataclasses import replace

import pytest

from solvers.planners.ask import find_plan
from solvers.planning.judge import judge
from solvers.planning.problem import Problem
from solvers.planning.solve import SolveBudget
from tests.solvers.planning.busy_fleets import busy_fleet

FEW = SolveBudget(seconds=None, work=5)


@pytest.mark.parametrize("seed", range(60))
def test_a_plan_beside_jobs_under_a_tight_budget_is_judged_right(seed: int) -> None:
    problem = busy_fleet(seed)
    assert problem.policy.power_budget_w
    plan = find_plan(problem, "morak", FEW, alone=True, bounds=False).plan
    assert judge(problem, plan).is_right


def unserved(problem: Problem) -> float:
    plan = find_plan(problem, "morak", FEW, alone=True, bounds=False).plan
    return sum(entry.rate_per_second for entry in plan.unserved)


@pytest.mark.slow
def test_jobs_that_may_be_stopped_leave_their_watts_to_services() -> None:
    short = 0
    for seed in range(20):
        problem = busy_fleet(seed)
        assert problem.state
        staying = tuple(job for job in problem.state.jobs if not problem.jobs[job.job].is_preemptible)
        without = unserved(replace(problem, state=replace(problem.state, jobs=staying)))
        assert unserved(problem) <= without * (1 + 1e-9)
        short += without > 0
    assert short
