"""The lab's baselines are asked by name like any planner, and keep the rules that every planner keeps."""

from __future__ import annotations

import pytest

from cli.planner_argument import any_planner
from lab.baselines.names import BASELINES
from solvers.planners.names import find_added_planners
from tests.solvers.planners import test_ask, test_beside_jobs
from tests.solvers.planning import test_caps
from tests.support.soak import scaled


def test_each_is_found_by_its_entry_point() -> None:
    assert find_added_planners().names == set(BASELINES)
    assert [any_planner(name) for name in BASELINES] == list(BASELINES)


@pytest.mark.parametrize("planner", BASELINES)
@pytest.mark.parametrize("seed", range(scaled(12, 4)))
def test_a_plan_keeps_every_rule_and_costs_at_least_the_bound(planner: str, seed: int) -> None:
    test_ask.test_a_plan_keeps_every_rule_and_costs_at_least_the_bound(planner, seed)


@pytest.mark.parametrize("planner", BASELINES)
@pytest.mark.parametrize("energy_price", [0.0, 0.3])
def test_jobs_that_must_stay_leave_every_planner_a_plan(planner: str, energy_price: float) -> None:
    test_beside_jobs.test_jobs_that_must_stay_leave_every_planner_a_plan(planner, energy_price)


@pytest.mark.parametrize("planner", BASELINES)
def test_no_two_instances_have_one_name(planner: str) -> None:
    test_beside_jobs.test_no_two_instances_have_one_name(planner)


@pytest.mark.parametrize("planner", BASELINES)
def test_no_planner_breaks_a_rule_under_caps(planner: str) -> None:
    test_caps.test_no_planner_breaks_a_rule_under_caps(planner)


@pytest.mark.parametrize("planner", BASELINES)
def test_what_runs_over_a_cap_that_was_lowered_does_not_stay_as_it_is(planner: str) -> None:
    test_caps.test_what_runs_over_a_cap_that_was_lowered_does_not_stay_as_it_is(planner)
