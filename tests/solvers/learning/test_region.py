"""A region's filter: it follows what lasts, refuses what is unlikely, and does not move for noise."""

from __future__ import annotations

import random
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from math import exp, log

import pytest

from solvers.learning.region import RatioSample, Region, new_region, update_region
from solvers.learning.tuning import FilterTuning
from tests.support.soak import scaled

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
TUNING = FilterTuning()


def after(region: Region, values: Iterable[float], start: int = 0, instances: int = 1) -> list[Region]:
    """The region after each minute with such a logarithm."""
    found = []
    for minute, value in enumerate(values, start=start):
        region = update_region(region, RatioSample(NOON + timedelta(minutes=minute), value, instances), TUNING)
        found.append(region)
    return found


def noise(minutes: int, around: float, sigma: float, seed: int) -> list[float]:
    draw = random.Random(seed)
    return [around + draw.gauss(0, sigma) for _ in range(minutes)]


@pytest.mark.parametrize("sigma", [0.005, 0.02, 0.05])
def test_the_mean_settles_and_knows_how_sure_it_is(sigma: float) -> None:
    misses = 0
    for seed in range(scaled(100, 20)):
        last = after(new_region(8, 30), noise(120, 0.1, sigma, seed))[-1]
        assert abs(last.mean - 0.1) <= 1.5 * sigma
        misses += abs(last.mean - 0.1) > 3 * last.variance**0.5
    assert misses <= scaled(5, 1)


def test_one_outlier_does_not_move_it() -> None:
    quiet = after(new_region(8, 30), noise(30, 0.0, 0.01, 1))[-1]
    hit = after(quiet, [log(3.0)], 30)[-1]
    assert (hit.mean, hit.refused, hit.n) == (quiet.mean, 1, quiet.n)
    assert after(hit, noise(3, 0.0, 0.01, 2), 31)[-1].mean == pytest.approx(quiet.mean, abs=0.005)


def test_an_outlier_now_and_then_does_not_either() -> None:
    values = noise(600, 0.0, 0.01, 3)
    values[::7] = [0.5] * len(values[::7])
    assert max(abs(region.mean) for region in after(new_region(8, 30), values)[5:]) < 0.02


@pytest.mark.parametrize(("instances", "minutes"), [(1, 3), (2, 3), (5, 3)])
def test_a_change_that_lasts_is_believed_once_enough_minutes_agree(instances: int, minutes: int) -> None:
    quiet = after(new_region(8, 30), noise(30, 0.0, 0.01, 1), instances=instances)[-1]
    changed = after(quiet, noise(minutes, log(1.2), 0.01, 2), 30, instances)
    assert abs(changed[minutes - 2].mean) < 0.02
    assert exp(changed[-1].mean) == pytest.approx(1.2, rel=0.02)
    assert changed[-1].since == NOON + timedelta(minutes=30)


def test_a_slow_drift_is_followed() -> None:
    quiet = after(new_region(8, 30), noise(30, 0.0, 0.01, 1))[-1]
    slow = [0.2 * minute / 600 + value for minute, value in enumerate(noise(600, 0.0, 0.01, 2))]
    assert after(quiet, slow, 30)[-1].mean == pytest.approx(0.2, abs=0.02)


def test_noise_alone_is_no_change() -> None:
    for seed in range(scaled(100, 10)):
        regions = after(new_region(8, 30), noise(1000, 0.0, 0.03, seed))
        assert {region.since for region in regions} == {NOON}


def test_without_traffic_it_stays_and_becomes_less_sure() -> None:
    region = after(new_region(8, 30), noise(30, 0.1, 0.01, 1))[-1]
    later = [region.variance_at(NOON + timedelta(days=days), TUNING) for days in (1, 3, 7)]
    assert later == sorted(later)
    assert later[-1] > 10 * region.variance
