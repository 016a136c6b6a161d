"""What a new plan moves is counted by comparing plans, whatever the planner says of itself."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.families import family, multiply_gpus
from benchmarks.replanning import SWING_FACTOR, PlanMoves, count_moves, new_rates, percentiles, run_rounds
from solvers.planning.plan import Plan
from solvers.planning.problem import Problem
from solvers.planning.replan import Replanner
from solvers.planning.solve import SolveBudget, solve


@pytest.fixture(scope="module")
def problem() -> Problem:
    return multiply_gpus(family("A", 8, 4, 2), 4)


@pytest.fixture(scope="module")
def plan(problem: Problem) -> Plan:
    return solve(problem, SolveBudget(seconds=None, work=20))


def test_a_plan_compared_with_itself_moves_nothing(plan: Plan) -> None:
    assert count_moves(plan, plan, ()) == PlanMoves(0, 0, 0, 0)


def test_a_new_rate_alone_moves_nothing(plan: Plan) -> None:
    slower = [replace(one, rate_per_second=one.rate_per_second / 2, batch_timeout_ms=1.0) for one in plan.instances]
    assert count_moves(plan, replace(plan, instances=tuple(slower)), ()) == PlanMoves(0, 0, 0, 0)


def test_a_moved_instance_of_an_untouched_service_is_reported(plan: Plan) -> None:
    first, *rest = plan.instances
    free = ("elsewhere", 0)
    elsewhere = replace(plan, instances=(replace(first, node=free[0], gpu=free[1]), *rest))
    assert count_moves(plan, elsewhere, {first.service}) == PlanMoves(1, 1, 0, 0)
    assert count_moves(plan, elsewhere, ()) == PlanMoves(1, 1, 0, 2)
    larger = replace(plan, instances=(replace(first, sm_percent=first.sm_percent + 1), *rest))
    assert count_moves(plan, larger, ()) == PlanMoves(0, 0, 1, 1)


def test_new_rates_swing_around_what_is_declared_and_touch_the_part_that_was_asked_for() -> None:
    problem = family("A", 20, 40, 0)
    rates = new_rates(problem, 0.05, np.random.default_rng(0))
    assert len(rates) == 2
    for name, rate in rates.items():
        assert 1 / SWING_FACTOR <= rate / problem.services[name].rate_per_second <= SWING_FACTOR


def test_each_round_is_a_valid_plan_and_continues_from_the_last(problem: Problem, plan: Plan) -> None:
    ticks = iter(np.arange(0.0, 100.0, 0.005))
    found = list(run_rounds(problem, plan, Replanner.of(problem, plan), 0.5, 3, 0, lambda: float(next(ticks))))
    assert [row["ms"] for _, row in found] == pytest.approx([5.0] * 3)
    assert all(row["violations"] == [] and row["untouched_moved"] == 0 for _, row in found)
    last = found[-1][0]
    assert (
        sum(last.services[name].rate_per_second != one.rate_per_second for name, one in problem.services.items()) >= 2
    )


def test_percentiles_are_values_that_were_measured() -> None:
    assert percentiles([3.0, 1.0, 2.0]) == {"p50_ms": 2.0, "p99_ms": 3.0, "max_ms": 3.0}
