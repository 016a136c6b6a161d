"""A solver that contradicts the judge raises; floats added in another order do not."""

from __future__ import annotations

import pytest

from solvers.proof import SolverBug, above, below, must_be_right


def test_a_bound_on_the_right_side_stays_as_it_is() -> None:
    assert below(9.0, 10.0, "greedy") == 9.0
    assert below(-11.0, -10.0, "greedy") == -11.0
    assert above(11.0, 10.0, "greedy") == 11.0


def test_the_rounding_of_a_sum_is_tolerated() -> None:
    assert below(10.0 + 9e-9, 10.0, "greedy") == 10.0
    assert above(10.0 - 9e-9, 10.0, "greedy") == 10.0


@pytest.mark.parametrize(("bound", "cost"), [(10.0 + 2e-8, 10.0), (1.0, 0.0), (-9.0, -10.0), (1e-12, 0.0)])
def test_a_cost_that_undercuts_its_bound_is_a_bug_of_a_solver(bound: float, cost: float) -> None:
    with pytest.raises(SolverBug, match="greedy costs"):
        below(bound, cost, "greedy")


@pytest.mark.parametrize(("bound", "worth"), [(10.0 - 2e-8, 10.0), (0.0, 1.0), (-10.0, -9.0)])
def test_a_worth_that_exceeds_its_bound_is_a_bug_of_a_solver(bound: float, worth: float) -> None:
    with pytest.raises(SolverBug, match="greedy is worth"):
        above(bound, worth, "greedy")


def test_an_answer_that_breaks_a_rule_names_it() -> None:
    must_be_right("exact", [])
    with pytest.raises(SolverBug, match="exact returned an invalid answer: a runs twice; g is full"):
        must_be_right("exact", ["a runs twice", "g is full"])
