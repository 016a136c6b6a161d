"""The integer program against brute force and against its heuristic."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest
from hypothesis import given, settings

from solvers.hetsev.scaling import (
    InstanceType,
    ScalingBudget,
    ScalingProblem,
    ScalingPromise,
    WrongScaling,
    exact,
    greedy,
    judge,
    scale,
)
from solvers.hetsev.scaling import _certify as certified
from solvers.proof import SolverBug
from tests.solvers.hetsev.scaling.made import best_cost, problems

SOAK = bool(os.environ.get("GPUWRIGHT_SOAK"))
FEW, MANY = (200, 2000) if SOAK else (12, 80)
V100 = InstanceType("v100", 90.0, 60.0, 4.0, 0.191, launch_seconds=10.0, most=8)
T4 = InstanceType("t4", 30.0, 200.0, 2.0, 0.024, launch_seconds=20.0, most=8)


@pytest.mark.slow
@pytest.mark.parametrize("solver", exact.SOLVERS)
@settings(max_examples=FEW, deadline=None)
@given(problem=problems())
def test_every_exact_solver_equals_brute_force(solver: str, problem: ScalingProblem) -> None:
    outcome = scale(problem, ScalingBudget(solver=solver))
    best = best_cost(problem)
    assert not judge.violations(problem, outcome.actions)
    assert outcome.proof.value == pytest.approx(best, abs=1e-6)
    assert outcome.proof.bound is not None
    assert outcome.proof.bound <= best + 1e-6


@pytest.mark.slow
@settings(max_examples=MANY, deadline=None)
@given(problem=problems())
def test_the_heuristic_is_right_and_never_cheaper(problem: ScalingProblem) -> None:
    actions = greedy.solve(problem)
    assert judge.violations(problem, actions) == []
    assert judge.cost(problem, actions) >= best_cost(problem) - 1e-9
    assert actions == greedy.solve(problem)


@pytest.mark.slow
@settings(max_examples=FEW, deadline=None)
@given(problem=problems())
def test_an_interrupted_search_still_brings_a_right_answer_and_a_bound_that_holds(problem: ScalingProblem) -> None:
    best = best_cost(problem)
    for solver in exact.SOLVERS:
        outcome = scale(problem, ScalingBudget(nodes=1, solver=solver))
        assert not judge.violations(problem, outcome.actions)
        assert outcome.proof.value >= best - 1e-6
        assert outcome.proof.bound is None or outcome.proof.bound <= best + 1e-6


@pytest.mark.slow
@settings(max_examples=MANY, deadline=None)
@given(problem=problems())
def test_no_budget_still_answers_and_says_that_the_bound_is_unknown(problem: ScalingProblem) -> None:
    outcome = scale(problem, ScalingBudget(nodes=0))
    assert not judge.violations(problem, outcome.actions)
    assert outcome.proof.method == "greedy; bound unknown"
    assert outcome.proof.bound is None


@pytest.mark.slow
@settings(max_examples=FEW, deadline=None)
@given(problem=problems())
def test_a_tighter_slo_never_lowers_the_cost_of_what_runs(problem: ScalingProblem) -> None:
    tighter = replace(problem, promise=ScalingPromise(60.0))
    assert scale(tighter).proof.value >= scale(problem).proof.value - 1e-6


def test_the_cheap_type_is_chosen_if_it_keeps_the_slo_and_the_dear_one_if_not() -> None:
    relaxed = ScalingProblem(100.0, ScalingPromise(400.0), (V100, T4))
    assert scale(relaxed).actions == {"v100": 0, "t4": 4}
    strict = replace(relaxed, promise=ScalingPromise(100.0))
    assert scale(strict).actions == {"v100": 2, "t4": 0}


def test_a_launch_costs_more_the_less_predictable_the_load_is() -> None:
    fast = replace(V100, name="fast", price_per_gib=0.1, launch_seconds=1.0)
    slow = replace(V100, name="slow", price_per_gib=0.09, launch_seconds=100.0)
    steady = ScalingProblem(50.0, ScalingPromise(400.0), (fast, slow))
    assert scale(steady).actions == {"fast": 0, "slow": 1}
    assert scale(replace(steady, unpredictability=0.1)).actions == {"fast": 1, "slow": 0}


def test_arrivals_that_no_instance_can_serve_are_priced_not_refused() -> None:
    outcome = scale(ScalingProblem(1000.0, ScalingPromise(400.0), (replace(V100, most=3),)))
    assert outcome.actions == {"v100": 3}
    assert outcome.unserved_per_second == pytest.approx(730.0)
    nothing = scale(ScalingProblem(10.0, ScalingPromise(10.0), (V100, T4)))
    assert nothing.unserved_per_second == 10.0


def test_each_constraint_is_judged_on_its_own() -> None:
    running = replace(T4, running=2)
    problem = ScalingProblem(10.0, ScalingPromise(100.0), (V100, running))
    assert judge.violations(problem, {"v100": 2, "t4": -2}) == []
    assert "3 instances of t4 are stopped; only 2 run" in judge.violations(problem, {"t4": -3})[0]
    assert "200 ms; at most 100 ms are allowed" in judge.violations(problem, {"t4": 1})[0]
    assert "its GPUs have room for 8" in judge.violations(problem, {"v100": 9})[0]
    assert judge.violations(problem, {"k80": 1}) == ["k80 is not an instance type of this service"]


def test_invalid_numbers_are_refused_by_name() -> None:
    with pytest.raises(WrongScaling, match="rt_max_ms 0"):
        ScalingPromise(0.0)
    with pytest.raises(WrongScaling, match="sl_min_percent 101"):
        ScalingPromise(1.0, 101.0)
    with pytest.raises(WrongScaling, match="two instance types"):
        ScalingProblem(1.0, ScalingPromise(1.0), (T4, T4))
    with pytest.raises(WrongScaling, match="instance type t4"):
        ScalingProblem(1.0, ScalingPromise(1.0), (replace(T4, throughput_per_second=0.0),))
    with pytest.raises(ValueError, match="cplex"):
        scale(ScalingProblem(1.0, ScalingPromise(1.0), (T4,)), ScalingBudget(solver="cplex"))


def test_a_proved_answer_has_no_larger_gap_than_the_tolerance_of_its_solver() -> None:
    proof = scale(ScalingProblem(100.0, ScalingPromise(400.0), (V100, T4))).proof
    assert proof.bound is not None
    assert proof.value - 2e-6 <= proof.bound < proof.value


def test_a_bound_above_the_cost_and_an_answer_that_breaks_a_rule_raise() -> None:
    problem = ScalingProblem(100.0, ScalingPromise(400.0), (V100, T4))
    with pytest.raises(SolverBug, match="greedy costs"):
        certified(problem, {"t4": 4}, judge.cost(problem, {"t4": 5}), "greedy")
    with pytest.raises(SolverBug, match="its GPUs have room for 8"):
        certified(problem, {"t4": 9}, None, "greedy")
