"""Orion and reserve-and-pack: who may share a GPU, and which GPUs are reserved."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lab.baselines import orion
from solvers.baselines import reserve
from solvers.planning.judge import judge
from solvers.planning.plan import Plan
from solvers.planning.planner_draft import PlanDrafter, PlannerBudget, PlannerDraft
from solvers.planning.problem import Node, Problem
from solvers.planning.search.promise import keep
from tests.solvers.oltunes.test_fleet_plan import problem_of


def planned(plan: PlanDrafter, problem: Problem, seed: int = 0) -> PlannerDraft:
    draft = plan(problem, {}, PlannerBudget(seed=seed))
    verdict = judge(problem, Plan(draft.instances, unserved=draft.unserved), simulate=False, keeps=keep)
    assert verdict.is_right, verdict.violations
    return draft


def keep_one_gpu(problem: Problem, gpu_type: str) -> Problem:
    """Returns the fleet with a single GPU."""
    return replace(problem, nodes={"n": Node("n", gpu_type, (0,), 64, 256, 1.0)})


def test_orion_puts_best_effort_beside_a_client_that_needs_something_else() -> None:
    draft = planned(orion.plan, keep_one_gpu(problem_of(), "fast"))
    assert len(draft.instances) == 2
    assert not draft.unserved


def test_orion_keeps_two_high_priority_clients_apart() -> None:
    draft = planned(orion.plan, keep_one_gpu(problem_of(priorities=(200, 200)), "fast"))
    assert len(draft.instances) == 1
    assert "high-priority client" in draft.unserved[0].reason


def test_orion_takes_any_gpu_by_its_seed() -> None:
    places = {tuple(line.place for line in planned(orion.plan, problem_of(), seed).instances) for seed in range(8)}
    assert len(places) > 1


def test_high_end_gpus_are_reserved_for_large_services() -> None:
    problem = problem_of()
    nodes = {**problem.nodes, "fast": replace(problem.nodes["fast"], price_per_hour=3.0)}
    draft = planned(reserve.plan, replace(problem, nodes=nodes))
    assert {line.service: line.node for line in draft.instances} == {"shop/see": "fast", "shop/say": "slow"}


@pytest.mark.parametrize("gpu_type", ["fast", "slow"])
def test_with_one_price_nothing_is_reserved(gpu_type: str) -> None:
    draft = planned(reserve.plan, keep_one_gpu(problem_of(rate=5.0), gpu_type))
    assert {line.service for line in draft.instances} == {"shop/see", "shop/say"}
    assert len({line.place for line in draft.instances}) == 1
