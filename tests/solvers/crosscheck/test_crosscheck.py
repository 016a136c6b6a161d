"""The exact model equals brute force, no joint plan is below it, and large fleets are refused by name."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from itertools import islice
from math import inf

import pytest
from hypothesis import HealthCheck, given, settings

from benchmarks.families import family
from solvers.crosscheck import TOLERANCE_SHARE, CrossCheck, TooLarge, cross_check, left_out
from solvers.crosscheck import rules as exact_rules
from solvers.planning.judge import judge
from solvers.planning.problem import Policy, Problem
from solvers.planning.search.promise import keep
from solvers.planning.solve import SolveBudget, find
from tests.solvers.crosscheck.tiny import tiny_problem
from tests.solvers.planning.small_fleets import fleets, least_cost
from tests.support.patience import patience
from tests.support.soak import SOAK, scaled

few = settings(
    deadline=None, max_examples=200 if SOAK else 25, derandomize=True, suppress_health_check=list(HealthCheck)
)
WORK = 5.0
JOINT_STEPS = 40
PROBLEMS = range(scaled(200, 20))
FEW_PROBLEMS = range(3)


def is_near(cost: float, other: float) -> bool:
    return abs(cost - other) <= TOLERANCE_SHARE * max(1.0, other)


@pytest.mark.slow
@few
@given(fleets())
def test_exact_is_brute_force(problem: Problem) -> None:
    least = least_cost(problem)

    found = cross_check(problem, WORK)

    assert found.is_proved
    if least < inf:
        assert is_near(found.cost, least)
    else:  # not everything can be served, which brute force does not price
        assert found.cost >= problem.policy.unserved_price


@pytest.mark.slow
@settings(few, max_examples=scaled(200, 10))
@given(fleets(pricing="node"))
def test_exact_is_brute_force_where_nodes_are_billed_whole(problem: Problem) -> None:
    least = least_cost(problem)
    found = cross_check(problem, WORK)
    assert found.is_proved
    assert least == inf or is_near(found.cost, least)


@pytest.fixture(scope="module")
def checked() -> dict[int, tuple[Problem, CrossCheck]]:
    problems = {seed: tiny_problem(seed) for seed in PROBLEMS}
    return {seed: (problem, cross_check(problem, WORK)) for seed, problem in problems.items()}


@pytest.mark.slow
def test_the_joint_planner_is_never_below_the_exact_bound(checked: dict[int, tuple[Problem, CrossCheck]]) -> None:
    for seed, (problem, found) in islice(checked.items(), scaled(200, 7)):
        plan = find(problem, SolveBudget(None, JOINT_STEPS, seed), alone=True).plan
        assert plan.certificate
        assert not found.is_above(plan.certificate.cost.total), seed
        if plan.certificate.bound is not None:  # and its own bound is below every plan
            assert plan.certificate.bound <= found.cost * (1 + TOLERANCE_SHARE) + TOLERANCE_SHARE, seed


def test_what_is_found_is_right_and_most_of_it_proved(checked: dict[int, tuple[Problem, CrossCheck]]) -> None:
    for problem, found in checked.values():
        if found.plan is None:
            continue
        verdict = judge(problem, found.plan, simulate=False, keeps=keep)
        assert verdict.is_right
        assert verdict.cost.total == pytest.approx(found.cost)
    assert sum(found.is_proved for _, found in checked.values()) >= 0.9 * len(checked)


@pytest.mark.slow
@pytest.mark.parametrize("rule", exact_rules.RULES, ids=lambda rule: rule.__name__)
def test_a_rule_that_is_left_out_can_only_lower_the_bound(
    rule: object, checked: dict[int, tuple[Problem, CrossCheck]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "solvers.crosscheck.search.RULES", tuple(other for other in exact_rules.RULES if other is not rule)
    )
    for seed in FEW_PROBLEMS:
        problem, whole = checked[seed]
        found = cross_check(problem, WORK)
        assert found.bound <= whole.cost * (1 + TOLERANCE_SHARE) + TOLERANCE_SHARE


def test_the_same_problem_has_the_same_answer() -> None:
    assert cross_check(tiny_problem(1), WORK) == cross_check(tiny_problem(1), WORK)


@pytest.mark.parametrize(
    ("gpus", "services", "words"),
    [(12, 2, "12 GPUs; the exact check takes at most 8"), (4, 9, "9 services; the exact check takes at most 6")],
)
def test_a_larger_fleet_is_refused_by_its_size(gpus: int, services: int, words: str) -> None:
    with pytest.raises(TooLarge, match=words):
        cross_check(family("A", gpus, services, 0))


@pytest.mark.slow
def test_too_many_shapes_are_refused_by_their_number() -> None:
    with pytest.raises(TooLarge, match="shapes on all GPUs; the exact check takes at most 12000"):
        cross_check(family("A", 8, 6, 0))


def test_what_is_left_out_is_named() -> None:
    drawn = tiny_problem(3)
    assert left_out(drawn) == ["pressure on bandwidth"]
    profiles = {
        key: replace(profile, demand=replace(profile.demand, sensitivity=0.2))
        for key, profile in drawn.profiles.items()
    }
    problem = replace(drawn, profiles=profiles)
    policy = replace(problem.policy, energy_price_per_kwh=0.3, power_budget_w=5000.0)
    assert left_out(problem) == []
    assert left_out(replace(problem, policy=policy)) == ["the energy of busy GPUs", "powerBudgetW"]
    assert isinstance(policy, Policy)


WITHOUT_PANDAS = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "pandas":
            raise ModuleNotFoundError(name, name=name)

sys.meta_path.insert(0, Missing())
from solvers.crosscheck import cross_check
from tests.solvers.crosscheck.tiny import tiny_problem
assert cross_check(tiny_problem(0)).is_proved
assert "pandas" not in sys.modules
"""


@pytest.mark.slow
def test_the_check_runs_without_pandas_as_in_the_planners_image() -> None:
    subprocess.run([sys.executable, "-c", WITHOUT_PANDAS], check=True, timeout=patience())
