"""Planners are asked by name, and their plans are judged and certified alike."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import get_args

import pytest

from app.manifests.fleet import PolicySpec
from solvers.planners.ask import DRAFTERS, PlanRefused, drafter_of, find_plan, judge_draft
from solvers.planners.names import BASELINES, JOINT, PLANNERS, UnknownPlanner
from solvers.planning.fleet.offers import NO_GPU
from solvers.planning.judge import judge
from solvers.planning.planner_draft import PlannerBudget
from solvers.planning.solve import SolveBudget, solve
from tests.solvers.hetsev.fleet.fleets import fleet
from tests.solvers.planning.random_problems import random_problem
from tests.support.soak import scaled

FEW = SolveBudget(seconds=None, work=5)


def test_every_name_plans_and_manifests_know_the_same_names() -> None:
    assert {JOINT, *DRAFTERS} == {*PLANNERS, *BASELINES}
    assert get_args(PolicySpec.model_fields["planner"].annotation) == PLANNERS
    with pytest.raises(UnknownPlanner, match="allowed: joint, hetsev, mudi, inss, morak, oltunes"):
        drafter_of("someone")


@pytest.mark.parametrize("planner", sorted({*PLANNERS} - {JOINT}))
def test_without_a_gpu_that_may_be_used_no_slo_is_blamed(planner: str) -> None:
    plan = find_plan(replace(fleet(), nodes={}), planner, FEW, alone=True).plan
    assert {rest.reason for rest in plan.unserved} == {NO_GPU}


@pytest.mark.slow
@pytest.mark.parametrize("planner", sorted(DRAFTERS))
@pytest.mark.parametrize("seed", range(scaled(12, 4)))
def test_a_plan_keeps_every_rule_and_costs_at_least_the_bound(planner: str, seed: int) -> None:
    problem = random_problem(seed)
    plan = find_plan(problem, planner, FEW, alone=True).plan
    assert judge(problem, plan).is_right
    known = plan.certificate
    assert known
    assert known.method.startswith(f"{planner}: ")
    assert known.bound is None or known.bound <= known.cost.total
    assert known.bound is None or known.bound <= joint_cost(seed) * (1 + 1e-6)


@cache
def joint_cost(seed: int) -> float:
    best = solve(random_problem(seed), FEW).certificate
    assert best
    return best.cost.total


def test_a_plan_that_breaks_a_hard_rule_is_refused_by_its_name() -> None:
    problem = fleet()
    draft = drafter_of("hetsev")(problem, {}, PlannerBudget())
    judge_draft(problem, "hetsev", draft)
    first, *others = draft.instances
    wrong = {
        "memory_fits": replace(first, memory_gib=1e6),
        "sm_fits": replace(first, sm_percent=100),
        "gpu_exists": replace(first, gpu=7),
    }
    for rule, line in wrong.items():
        with pytest.raises(PlanRefused, match=f"the plan of hetsev breaks .*{rule}"):
            judge_draft(problem, "hetsev", replace(draft, instances=(line, *others)))
