"""Pressure and sensitivity of a job from its layers."""

from __future__ import annotations

import pytest

from solvers.interference.layers import LayeredValues, predict_from_layers

CONVOLUTIONS = [LayeredValues({"conv": count}, (0.2 + count / 200,)) for count in (10, 20, 40, 60, 80, 100)]
ATTENTION = [LayeredValues({"linear": count, "embedding": 3}, (0.9,)) for count in (40, 60, 80)]


def test_a_job_is_like_the_jobs_with_layers_like_its_own() -> None:
    known = [*CONVOLUTIONS, *ATTENTION]
    small, large = (predict_from_layers(known, {"conv": count}) for count in (12, 95))
    other = predict_from_layers(known, {"linear": 70, "embedding": 3})
    assert small
    assert large
    assert other
    assert small.expected[0] < large.expected[0] < other.expected[0]
    assert other.expected[0] == pytest.approx(0.9, rel=0.05)


def test_a_plan_is_made_with_no_less_than_what_is_expected() -> None:
    found = predict_from_layers([*CONVOLUTIONS, *ATTENTION], {"conv": 30})
    assert found
    assert found.planned[0] >= found.expected[0]
    assert found.jobs == 9


def test_from_two_jobs_nothing_is_predicted() -> None:
    assert predict_from_layers(CONVOLUTIONS[:2], {"conv": 30}) is None


def test_layers_that_say_nothing_give_the_mean_of_all() -> None:
    known = [LayeredValues({"conv": 10 + at}, ((0.2, 0.8)[at % 2],)) for at in range(12)]
    found = predict_from_layers(known, {"conv": 15})
    assert found
    assert found.expected[0] == pytest.approx(0.4, rel=0.2)  # the mean of logarithms
    assert found.error > 0.5
