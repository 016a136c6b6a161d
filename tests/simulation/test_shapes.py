"""Load shapes are as configured, and the same every time."""

from __future__ import annotations

import pytest

from simulation.shapes import NOISE_SECONDS, moving, noisy, spike, steady, wave
from tests.simulation.worlds import all_noisy


def test_a_spike_ramps_up_holds_and_ends() -> None:
    shape = spike(begins=100, times=4, ramp_seconds=30, hold_seconds=600)
    assert [shape(at) for at in (99, 100, 115, 130, 729, 730)] == [1, 1, 2.5, 4, 4, 1]


def test_a_day_goes_from_low_to_high_and_back() -> None:
    shape = wave(0.25, 1.0, 86400)
    assert shape(0) == pytest.approx(0.25)
    assert shape(43200) == pytest.approx(1.0)
    assert shape(86400) == pytest.approx(0.25)


def test_noise_lasts_for_seconds_and_stays_small() -> None:
    shape = noisy(steady, 0.02, "a")
    factors = [shape(at) for at in range(0, 10_000, int(NOISE_SECONDS))]
    assert shape(3) == shape(7)
    assert max(abs(factor - 1) for factor in factors) <= 0.06 + 1e-9
    assert 0.015 < sum((factor - 1) ** 2 for factor in factors) ** 0.5 / len(factors) ** 0.5 < 0.025


def test_services_deviate_apart_and_again_alike() -> None:
    first, other = all_noisy({"a": steady, "b": steady}, 0.1, seed=3).values()
    assert first(5) != other(5)
    assert first(5) == all_noisy({"a": steady}, 0.1, seed=3)["a"](5)


def test_what_moves_stays_within_its_depth() -> None:
    shape = moving(7, depth=0.35, period_seconds=900)
    factors = [shape(at) for at in range(0, 20_000, 10)]
    assert 0.65 - 1e-9 <= min(factors) < 0.85
    assert 1.15 < max(factors) <= 1.35 + 1e-9
