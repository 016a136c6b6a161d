"""On random problems the judge, with simulation, accepts the plans of `solve` and finds no wrong claim."""

from __future__ import annotations

import pytest

from solvers.planning.judge import judge
from solvers.planning.solve import SolveBudget, solve
from tests.solvers.planning.random_problems import random_problem
from tests.support.soak import scaled

PROBLEMS = scaled(500, 10)
STEP = 500 // PROBLEMS  # every day others of the same 500 would be luck; these are spread over them


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(0, 500, STEP))
def test_every_plan_is_right_and_says_nothing_untrue(seed: int) -> None:
    problem = random_problem(seed)
    plan = solve(problem, SolveBudget(seconds=None, work=3 + seed % 4, seed=seed))
    verdict = judge(problem, plan)
    assert verdict.violations == ()
    assert verdict.misstated == ()
    assert plan.certificate and "violations" not in plan.certificate.method
    assert "bug" not in plan.certificate.method  # a bound above the cost
    assert plan.certificate.bound is None or plan.certificate.bound <= plan.certificate.cost.total


@pytest.mark.parametrize("seed", [283, 386, 415])
def test_services_make_way_for_a_running_job_that_must_stay(seed: int) -> None:
    problem = random_problem(seed)
    assert problem.state
    plan = solve(problem, SolveBudget(seconds=0))
    assert judge(problem, plan).violations == ()
    stays = {job.job: job.place for job in problem.state.jobs if not problem.jobs[job.job].is_preemptible}
    assert stays
    assert stays.items() <= {job.job: job.place for job in plan.jobs}.items()
    assert plan.instances
