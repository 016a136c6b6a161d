"""Pressures and sensitivities of Profiles from measured pairs."""

from __future__ import annotations

import pytest

from solvers.interference import Neighbour, SharedRun, SlowdownObservation, WrongObservation
from solvers.interference.scalars import pressure_and_sensitivity
from tests.solvers.interference.families import PRESSURE, SENSITIVITY, declared_pairs


def test_exact_pairs_give_back_what_made_them() -> None:
    found = pressure_and_sensitivity(declared_pairs())
    for model, sensitivity in SENSITIVITY.items():
        measured = found[model]
        assert measured.sensitivity is not None
        assert measured.sensitivity.mean == pytest.approx(sensitivity, rel=1e-3)
        for percent in (20, 50):
            assert measured.pressure[percent].mean == pytest.approx(PRESSURE[model, percent], rel=1e-3)


def test_noise_shows_as_spread_and_the_truth_lies_within_it() -> None:
    exact, noisy = (pressure_and_sensitivity(declared_pairs(noise, samples=20)) for noise in (0.0, 0.03))
    for model in SENSITIVITY:
        sharp, blurred = exact[model].sensitivity, noisy[model].sensitivity
        assert sharp is not None
        assert blurred is not None
        assert sharp.q90 - sharp.mean < 0.1 * (blurred.q90 - blurred.mean)
        assert abs(blurred.mean - SENSITIVITY[model]) < 4 * (blurred.q90 - blurred.mean)


def test_what_was_not_measured_is_left_out() -> None:
    found = pressure_and_sensitivity([SlowdownObservation(SharedRun("a", 50, (Neighbour("b", 20),)), 1.2)])
    assert found["a"].pressure == {}
    assert found["b"].sensitivity is None


def test_faster_beside_others_is_no_negative_pressure() -> None:
    found = pressure_and_sensitivity([SlowdownObservation(SharedRun("a", 50, (Neighbour("b", 20),)), 0.9)])
    assert found["b"].pressure[20].mean == 0
    with pytest.raises(WrongObservation, match="against the model alone"):
        pressure_and_sensitivity([SlowdownObservation(SharedRun("a", 50, (Neighbour("b", 20),), against=100), 0.9)])
