"""Under shareAcrossTenants: false the joint planner keeps jobs off GPUs that services or other jobs use."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from solvers.planning.judge import judge
from solvers.planning.problem import Problem
from solvers.planning.solve import SolveBudget, solve
from tests.solvers.planning.small_world import problem

BUDGET = SolveBudget(seconds=None, work=50)


def where_no_gpu_is_free_of_charge(*, share_across_tenants: bool) -> Problem:
    """Returns the small world without owned nodes, where a job that shares a GPU costs less than one alone."""
    made = problem(share_across_tenants=share_across_tenants)
    return replace(made, nodes={name: replace(node, purchase="onDemand") for name, node in made.nodes.items()})


@pytest.mark.slow
def test_a_job_gets_a_gpu_alone_where_tenants_may_not_share() -> None:
    mixed = solve(where_no_gpu_is_free_of_charge(share_across_tenants=True), BUDGET)
    used = {line.place for line in mixed.instances}
    assert any(job.place in used for job in mixed.jobs), "they would share"
    apart = where_no_gpu_is_free_of_charge(share_across_tenants=False)
    plan = solve(apart, BUDGET)
    places = Counter([line.place for line in plan.instances] + [job.place for job in plan.jobs])
    assert plan.jobs
    assert all(places[job.place] == 1 for job in plan.jobs)
    assert [found for found in judge(apart, plan).violations if found.rule == "tenants_apart"] == []
