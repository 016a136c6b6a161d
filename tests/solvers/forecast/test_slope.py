"""A line through the load of late says what it rises by."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from solvers.forecast import Sample
from solvers.forecast.slope import extend_slope

AHEAD = 240.0


def course(rate: Callable[[float], float], seconds: float = 1800.0) -> list[Sample]:
    ats = [10.0 * step for step in range(1, int(seconds / 10) + 1)]
    return [Sample(at, 10.0, 10.0 * rate(at)) for at in ats]


def rises(samples: list[Sample]) -> float:
    return extend_slope(samples, AHEAD) - extend_slope(samples, 0.0)


def test_a_steady_rise_is_extended_and_a_fall_is_not() -> None:
    assert rises(course(lambda at: 20 + at / 60)) == pytest.approx(AHEAD / 60)
    assert extend_slope(course(lambda at: 20 + at / 60), 0.0) == pytest.approx(50.0)
    assert rises(course(lambda at: 80 - at / 60)) == 0.0


def test_ten_minutes_must_be_known() -> None:
    assert extend_slope(course(lambda at: 20.0, seconds=590.0), AHEAD) == 0.0
