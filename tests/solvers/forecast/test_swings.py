"""How long a peak is remembered follows from how long the load lately took to come back."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from solvers.forecast import ForecastTuning, Sample
from solvers.forecast.peaks import recall_seconds

TUNING = ForecastTuning()
KNOWN_SECONDS = 1800


def recalled(rate: Callable[[float], float]) -> float:
    """Returns how long a peak is remembered after half an hour of this load."""
    samples = [Sample(float(at), 10.0, 10.0 * rate(at - 5.0)) for at in range(10, KNOWN_SECONDS + 10, 10)]
    return recall_seconds(samples, TUNING)


def away(minutes: int, lowest: float = 50.0) -> Callable[[float], float]:
    """A load of 100 that is lower for so many minutes from the fifth on."""
    return lambda seconds: lowest if 300 <= seconds < 300 + 60 * minutes else 100.0


@pytest.mark.parametrize("minutes", [7, 10, 13])
def test_a_load_that_came_back_is_waited_for(minutes: int) -> None:
    assert recalled(away(minutes)) == TUNING.swing_seconds


@pytest.mark.parametrize("minutes", [16, 20, 60])
def test_a_load_that_stayed_away_for_longer_than_any_memory_is_not(minutes: int) -> None:
    assert recalled(away(minutes)) == TUNING.recall_seconds


def test_a_load_that_falls_all_the_time_is_not_waited_for() -> None:
    assert recalled(lambda seconds: 100 - seconds / 40) == TUNING.recall_seconds


def test_a_dip_too_small_for_a_plan_to_fall_says_nothing() -> None:
    assert recalled(away(10, lowest=95.0)) == TUNING.recall_seconds
    assert recalled(lambda seconds: 100.0) == TUNING.recall_seconds


def test_a_short_dip_lengthens_no_memory() -> None:
    assert recalled(away(3)) == TUNING.recall_seconds


def test_a_time_without_samples_counts_as_silence() -> None:
    samples = [Sample(float(at), 10.0, 1000.0) for at in (*range(10, 310, 10), *range(910, 1210, 10))]
    assert recall_seconds(samples, TUNING) == TUNING.swing_seconds
