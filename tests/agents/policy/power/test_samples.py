"""Peak and mean of a period, from counters and readings of every quality."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from agents.policy.power import Samples


def test_the_energy_counter_tells_peak_and_mean_of_the_period_alone() -> None:
    samples = Samples()
    samples.read(0.0, 400.0, 10**9)
    samples.period()
    for at, energy in ((0.25, 25_000), (0.5, 125_000), (0.75, 150_000), (1.0, 175_000)):
        samples.read(at, 400.0, 10**9 + energy)  # the readings still tell of the second before
    assert samples.period() == (400.0, 175.0)
    samples.read(1.5, 400.0, 10**9 + 225_000)
    assert samples.period() == (100.0, 100.0)


def test_a_restarted_counter_is_not_a_negative_draw() -> None:
    samples = Samples()
    samples.read(0.0, 100.0, 10**9)
    samples.read(0.5, 100.0, 10**9 + 50_000)
    samples.read(0.6, 100.0, 0)
    samples.read(1.0, 100.0, 40_000)
    assert samples.period() == (100.0, 100.0)


def test_without_a_counter_readings_that_reach_behind_a_move_do_not_count() -> None:
    samples = Samples()
    samples.moved(10.0)
    for at, watts in ((10.25, 380.0), (10.5, 350.0), (10.75, 320.0), (11.0, 300.0)):
        samples.read(at, watts, None)
    assert samples.period() == (300.0, 300.0)
    samples.read(11.25, 310.0, None)
    samples.read(11.5, 290.0, None)
    assert samples.period() == (310.0, 300.0)


def test_a_reading_that_only_tells_of_before_the_move_is_none() -> None:
    samples = Samples()
    samples.moved(10.0)
    samples.read(10.1, 400.0, None)
    assert samples.period() is None
    samples.read(10.7, 330.0, None)
    assert samples.period() == (330.0, 330.0)


def test_a_period_without_readings_says_nothing() -> None:
    samples = Samples()
    samples.read(0.0, None, None)
    samples.read(0.1, math.nan, None)
    samples.read(0.2, -1.0, None)
    samples.read(0.3, 1e9, None)
    assert samples.period() is None


MAYBE_WATTS = st.none() | st.floats()
LOOK = st.tuples(st.floats(0, 1e6), MAYBE_WATTS, st.none() | st.integers(-5, 2**62), st.booleans())


@given(st.lists(LOOK, max_size=30))
def test_for_any_reading_the_peak_is_at_least_the_mean_and_both_are_watts(
    looks: list[tuple[float, float | None, int | None, bool]],
) -> None:
    samples = Samples()
    for at, watts, energy, ends in looks:
        samples.read(at, watts, energy)
        found = samples.period() if ends else None
        if found:
            peak, mean = found
            assert 0 <= mean <= 100_000
            assert mean <= peak * (1 + 1e-9) + 1e-6
