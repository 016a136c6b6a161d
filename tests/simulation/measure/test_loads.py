"""The loads that have a name: the same seed gives the same load, and each is what its name says."""

from __future__ import annotations

from typing import get_args

import pytest

from simulation.limits import LoadName
from simulation.measure.loads import make_load

NAMES = [f"shop/{letter}" for letter in "abcd"]
NOISE = 3 * 0.02


@pytest.mark.parametrize("load", get_args(LoadName))
def test_a_load_depends_on_its_seed_alone(load: LoadName) -> None:
    first, same, other = (make_load(load, NAMES, 2.0, seed) for seed in (1, 1, 2))
    moments = range(0, 7200, 60)
    assert [[first[name](at) for at in moments] for name in NAMES] == [
        [same[name](at) for at in moments] for name in NAMES
    ]
    assert any(first[name](at) != other[name](at) for name in NAMES for at in moments)


def test_steady_and_moving_loads_stay_around_the_declared_rate() -> None:
    for load, most in (("steady", 1 + NOISE), ("moving", 1.3 * (1 + NOISE))):
        shapes = make_load(load, NAMES, 1.0, 3)  # type: ignore[arg-type]
        values = [shapes[name](at) for name in NAMES for at in range(0, 3600, 30)]
        assert 2 - most <= min(values) <= max(values) <= most


def test_a_wave_is_low_at_the_beginning_and_as_declared_half_a_day_later() -> None:
    shapes = make_load("wave", NAMES, 24.0, 5)
    assert all(shapes[name](0) < 0.35 and shapes[name](43_200) > 0.9 for name in NAMES)


def test_in_every_hour_one_service_spikes_to_four_times_its_load() -> None:
    shapes = make_load("spike", NAMES, 6.0, 5)
    for hour in range(6):  # more than there are services
        middle = 3600 * hour + 1200
        assert sorted(round(shapes[name](middle)) for name in NAMES) == [1, 1, 1, 4]
        assert all(round(shapes[name](3600 * hour + 1600)) == 1 for name in NAMES)
