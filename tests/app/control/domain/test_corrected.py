"""A corrected profile: slower where it was learned, as declared elsewhere."""

from __future__ import annotations

import pytest

from app.control.domain.corrected import correct_profile, factor_at
from app.control.domain.snapshot import Correction, LatencyFactor
from solvers.planning.judge.readings import value_at
from solvers.planning.problem import Demand, Profile
from tests.support.corrections import slower

PROFILE = Profile(
    "resnet", "fp16", "v100", {1: ((10, 20.0), (100, 8.0)), 8: ((10, 96.0), (100, 24.0))}, {1: 1.0, 8: 2.0},
    Demand(pressure=((100, 0.5),), sensitivity=0.3, power_w=((100, 180.0),)),
)  # fmt: skip
RANGE = Correction((
    LatencyFactor(8, 10, 1.0), LatencyFactor(8, 50, 1.0), LatencyFactor(8, 60, 1.2), LatencyFactor(8, 70, 1.0),
    LatencyFactor(8, 100, 1.0),
))  # fmt: skip


def test_without_a_correction_a_profile_stays_what_it_is() -> None:
    assert correct_profile(PROFILE, Correction()) == PROFILE


def test_one_factor_holds_for_the_whole_curve() -> None:
    found = correct_profile(PROFILE, slower(1.5))
    assert found.latency_ms == {1: ((10, 30.0), (100, 12.0)), 8: ((10, 144.0), (100, 36.0))}


def test_a_range_is_slower_than_both_sides() -> None:
    found = correct_profile(PROFILE, RANGE)
    curve, declared = found.latency_ms[8], PROFILE.latency_ms[8]
    assert value_at(curve, 60) == pytest.approx(1.2 * value_at(declared, 60))
    for sm_percent in (10, 30, 50, 70, 85, 100):
        assert value_at(curve, sm_percent) == pytest.approx(value_at(declared, sm_percent))
    assert found.latency_ms[1] == PROFILE.latency_ms[1]


def test_points_outside_a_changed_curve_are_left_out() -> None:
    shorter = Profile("resnet", "fp16", "v100", {8: ((55, 40.0), (65, 38.0))}, {8: 2.0})
    assert [sm for sm, _ in correct_profile(shorter, RANGE).latency_ms[8]] == [55, 60, 65]


def test_factors_of_neighbours_memory_and_power_are_applied() -> None:
    found = correct_profile(PROFILE, Correction(sensitivity_factor=2.0, memory_factor=1.5, power_factor=0.5))
    assert (found.demand.sensitivity, found.memory_gib, found.demand.power_w) == (0.6, {1: 1.5, 8: 3.0}, ((100, 90.0),))
    assert found.latency_ms == PROFILE.latency_ms


def test_the_place_farthest_from_the_declared_stands_for_a_correction() -> None:
    assert RANGE.farthest == LatencyFactor(8, 60, 1.2)
    assert Correction((LatencyFactor(8, 10, 1.2), LatencyFactor(8, 60, 0.8))).latency_factor == 0.8
    assert Correction().latency_factor == 1.0
    assert factor_at(RANGE, 8, 65) == pytest.approx(1.1)
    assert factor_at(RANGE, 4, 60) == 1.0
