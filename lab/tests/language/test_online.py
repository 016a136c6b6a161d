"""A quantile of token times is learned while requests come."""

from __future__ import annotations

import numpy as np
import pytest

from lab.language.online import OnlineQuantile, ReportedState, followed


def states(count: int) -> tuple[list[ReportedState], list[float]]:
    """Returns a load that grows, and a TTFT that grows with the work ahead and scatters."""
    generator = np.random.default_rng(2)
    found, times = [], []
    for place in range(count):
        waiting = int(place / count * 60 * generator.uniform(0.5, 1.5))
        tokens = int(generator.integers(100, 3000))
        found.append(ReportedState(min(0.9, waiting / 60), waiting, 20 + waiting // 2, 1500.0 * waiting, tokens))
        times.append(float((50 + 0.05 * (1500 * waiting + tokens)) * np.exp(0.2 * generator.normal())))
    return found, times


@pytest.mark.slow
def test_nine_of_ten_requests_are_within_the_quantile_while_the_load_grows() -> None:
    found, times = states(600)
    told = np.array(followed(0.9, found, times))
    covered = np.array(times[50:]) <= told[50:]
    assert 0.86 <= covered.mean() <= 0.94
    assert np.median(told[300:] / np.array(times[300:])) < 2


def test_a_prediction_knows_nothing_of_what_comes_later() -> None:
    found, times = states(120)
    assert followed(0.9, found[:80], times[:80]) == followed(0.9, found, times)[:80]


def test_a_quantile_outside_its_range_is_refused() -> None:
    with pytest.raises(ValueError, match=r"quantile 0.2 is outside 0.5..1"):
        OnlineQuantile(0.2)


def test_a_time_of_zero_is_no_measurement() -> None:
    with pytest.raises(ValueError, match=r"measured time 0\.0 ms is outside 0\.\."):
        OnlineQuantile().learn(ReportedState(0.1, 0, 1, 0.0, 100), 0.0)
