"""Profiles taken from a physics by few measurements are near it, and say how sure they are."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from app.control.formulate.problem import build_problem
from app.manifests.model import Kind
from app.manifests.uncertain import MEAN_QUANTILE, Q90
from simulation.physical_truth import learn
from simulation.profiling import COMPLETE, SIXTEEN, profile_world
from simulation.profiling.alone import measure_alone
from simulation.profiling.beside import MeasuredGroup, explain, measure_groups
from simulation.truth.fitting import LoadKey
from simulation.truth.physics import Physics, RunningLoad
from solvers.interference.pure_factors import FACTORS
from tests.simulation.worlds import small

pytestmark = pytest.mark.slow

KEY = ("a", "fp16", "v100-16gb")


def test_at_most_sixteen_settings_are_measured_and_some_at_a_lower_clock() -> None:
    made, problem = Physics(1), build_problem(small())
    learn(made, problem)
    latency_ms = {1 << power: tuple((percent, 1.0) for percent in range(10, 101, 10)) for power in range(6)}
    found = measure_alone(made, KEY, latency_ms, (1200.0, 1530.0), 16, np.random.default_rng(0))
    assert 8 <= len(found.measurements) <= 16
    assert len({one.setting for one in found.measurements}) == len(found.measurements)
    assert 1 <= len(found.at(1200)) <= 3


def test_measured_profiles_are_near_the_truth_and_their_upper_quantile_covers_it() -> None:
    made = Physics(2)
    world = profile_world(small(), made, SIXTEEN)
    for quantile, least in ((MEAN_QUANTILE, -0.1), (Q90, -0.03)):
        profile = build_problem(world, quantile).profiles[KEY]
        errors = [
            ms / made.alone_ms(KEY, batch, percent) - 1
            for batch, curve in profile.latency_ms.items()
            for percent, ms in curve
        ]
        assert min(errors) > least
        assert max(errors) < 0.3


def test_complete_profiles_have_every_time() -> None:
    made = Physics(2)
    profile = build_problem(profile_world(small(), made, COMPLETE)).profiles[KEY]
    for batch, curve in profile.latency_ms.items():
        for percent, ms in curve:
            assert abs(ms / made.alone_ms(KEY, batch, percent) - 1) < 1e-3


def test_a_power_limit_is_no_slowdown_by_neighbours() -> None:
    slowest = []
    for most_w in (300.0, 110.0):
        made, problem = Physics(1), build_problem(small())
        made.add_gpu("v100-16gb", 40.0, most_w, 1530.0)
        learn(made, problem)
        batches: dict[LoadKey, list[int]] = {key: sorted(one.latency_ms) for key, one in problem.profiles.items()}
        groups = measure_groups(made, batches, 12, np.random.default_rng(0))
        slowest.append(max(slow for group in groups for slow in group.slow))
    unlimited, limited = slowest
    assert 1.0 <= limited <= unlimited + 0.02


def test_only_profiles_change_and_those_that_no_service_uses_are_left_out() -> None:
    world = small()
    found = profile_world(world, Physics(0), SIXTEEN)
    others = {key: one for key, one in world.manifests.items() if key.kind is not Kind.PROFILE}
    assert {key: one for key, one in found.manifests.items() if key.kind is not Kind.PROFILE} == others
    assert {key for key in found.manifests if key.kind is Kind.PROFILE} <= set(world.manifests)
    for one in found.of(Kind.PROFILE):
        assert one.spec["memoryGib"] == world.manifests[one.key].spec["memoryGib"]


@pytest.mark.parametrize("factors", [1, 2])
def test_groups_slowed_by_two_factors_are_explained_by_two_and_others_by_one(factors: int) -> None:
    keys: list[LoadKey] = [(f"m{number}", "fp16", "v100-16gb") for number in range(6)]
    sensitive, pressing = np.random.default_rng(0).uniform(0.1, 1.0, (2, 6, factors))
    if factors == 2:
        pressing[0, 1] = pressing[1, 0] = 0.0
    groups = []
    for first, second in product(range(6), range(6)):
        shares = (20, 40) if (first + second) % 2 else (40, 40)
        members = tuple(RunningLoad(keys[at], 1, share) for at, share in zip((first, second), shares, strict=True))
        # Pressure grows with SM%: on compute in proportion, on bandwidth hardly.
        pushed = [pressing[at] * np.array([share / 40, 0.8 + share / 200][:factors])
                  for at, share in zip((first, second), shares, strict=True)]  # fmt: skip
        slow = (1 + float(sensitive[first] @ pushed[1]), 1 + float(sensitive[second] @ pushed[0]))
        groups.append(MeasuredGroup(members, slow))
    found = explain(groups, keys, None)
    for place, key in enumerate(keys):
        assert tuple(found[key].sensitivity) == FACTORS[:factors]
        expected = sensitive[place] @ pressing.T
        predicted = sum(
            found[key].sensitivity[name] * np.array([dict(found[other].pressure[name])[40.0] for other in keys])
            for name in FACTORS[:factors]
        )
        assert predicted == pytest.approx(expected, abs=0.06)
