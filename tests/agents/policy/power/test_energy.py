"""The energy total: it follows the counter through resets, gaps and failures."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from agents.policy.power import Energy, add_reading
from agents.policy.power.energy import LONGEST_GAP_SECONDS


def test_the_first_reading_counts_nothing_and_the_next_what_was_drawn_between() -> None:
    first = add_reading(Energy(), 5_000_000, 100.0, 0.0)
    assert first.total_mj == 0
    assert add_reading(first, 5_100_000, 100.0, 1.0).total_mj == 100_000


def test_a_restarted_counter_adds_its_value_and_watts_fill_the_gap() -> None:
    before = add_reading(Energy(), 5_000_000, 100.0, 0.0)
    after = add_reading(before, 300_000, 100.0, 10.0)  # 1,000 J by watts, 300 J of them after the reset
    assert (after.total_mj, after.estimated_mj, after.resets) == (1_000_000, 700_000, 1)
    # The energy drawn before the reset is unknown: only the counter's value is certain.
    assert add_reading(before, 300_000, None, 10.0).total_mj == 300_000


def test_without_a_counter_watts_are_integrated_and_marked() -> None:
    energy = Energy()
    for second in range(11):
        energy = add_reading(energy, None, 250.0, float(second))
    assert (energy.total_mj, energy.estimated_mj, energy.unknown_seconds) == (2_500_000, 2_500_000, 0.0)


def test_a_counter_that_comes_back_is_not_counted_twice() -> None:
    energy = add_reading(Energy(), 1_000_000, 100.0, 0.0)
    energy = add_reading(energy, None, 100.0, 1.0)  # away for a second: 100 J by watts
    energy = add_reading(energy, 1_200_000, 100.0, 2.0)  # and another second by watts
    assert (energy.total_mj, energy.estimated_mj) == (200_000, 200_000)
    assert add_reading(energy, 1_300_000, 100.0, 3.0).total_mj == 300_000


def test_a_long_absence_adds_nothing_unmeasured() -> None:
    energy = add_reading(Energy(), None, 100.0, 0.0)
    energy = add_reading(energy, None, 100.0, LONGEST_GAP_SECONDS + 1)
    assert (energy.total_mj, energy.unknown_seconds) == (0, LONGEST_GAP_SECONDS + 1)


def test_a_long_absence_with_a_counter_that_went_on_is_counted_whole() -> None:
    energy = add_reading(Energy(), 1_000, 100.0, 0.0)
    assert add_reading(energy, 901_000, None, 3600.0).total_mj == 900_000


READINGS = st.tuples(
    st.none() | st.integers(-(2**40), 2**62),
    st.none() | st.floats(),
    st.floats(-1e9, 1e9),
)


@given(st.lists(READINGS, max_size=30))
def test_the_total_only_grows_for_any_reading(readings: list[tuple[int | None, float | None, float]]) -> None:
    energy = Energy()
    for counter, watts, at in readings:
        after = add_reading(energy, counter, watts, at)
        assert after.total_mj >= energy.total_mj
        assert after.estimated_mj >= energy.estimated_mj
        assert after.total_mj >= after.estimated_mj
        assert after.unknown_seconds >= energy.unknown_seconds
        energy = after


@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=50), st.data())
def test_resets_lose_nothing_where_watts_are_right(joules: list[int], data: st.DataObject) -> None:
    """A counter of the joules drawn each second, reset between any two readings."""
    energy, counter, total = add_reading(Energy(), 0, 0.0, 0.0), 0, 0
    for second, drawn in enumerate(joules, 1):
        counter = drawn if data.draw(st.booleans()) and drawn < counter else counter + drawn
        total += drawn
        energy = add_reading(energy, counter, drawn / 1000, float(second))
    assert math.isclose(energy.total_mj, total, abs_tol=len(joules))
