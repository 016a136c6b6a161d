"""Knees: the two lines of least squares, wherever they meet."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from solvers.morak.power import knee, share_at_knee
from tests.support.soak import scaled


@settings(max_examples=scaled(1000, 100), deadline=None)
@given(st.floats(22, 78), st.floats(1, 50), st.floats(0.05, 2), st.floats(0, 1))
def test_a_knee_between_the_points_is_found(at: float, height: float, before: float, part: float) -> None:
    after = part * before * 0.9
    curve = tuple((x, height - before * min(x - at, 0) - after * max(x - at, 0)) for x in range(10, 101, 10))
    found = knee(curve)
    assert found is not None
    assert found.sm_percent == pytest.approx(at, abs=1e-3)
    assert found.slope_before == pytest.approx(-before, rel=1e-4)
    assert found.slope_after == pytest.approx(-after, abs=1e-4)


@settings(max_examples=scaled(1000, 100), deadline=None)
@given(st.lists(st.floats(1, 100), min_size=4, max_size=9))
def test_no_other_joint_has_a_smaller_error(latencies: list[float]) -> None:
    heights = sorted(latencies, reverse=True)
    curve = tuple((10 * (place + 1), height) for place, height in enumerate(heights))
    x, y = np.array([p[0] for p in curve], float), np.array(heights)
    errors = []
    for joint in np.linspace(x[1], x[-2], 60):
        columns = np.column_stack((np.ones_like(x), np.minimum(x - joint, 0), np.maximum(x - joint, 0)))
        error = y - columns @ np.linalg.lstsq(columns, y, rcond=None)[0]
        errors.append(float(error @ error))
    found = knee(curve)
    if found:
        assert found.squared_error <= min(errors) + 1e-6 * float(y @ y)


def test_three_points_have_their_knee_at_the_second() -> None:
    found = knee(((10, 90.0), (30, 36.0), (100, 28.0)))
    assert found is not None
    assert found.sm_percent == pytest.approx(30)
    assert found.squared_error == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize(
    ("curve", "share"),
    [
        (((10, 5.0), (100, 5.0)), 10),  # flat: the least will do
        (((10, 50.0), (55, 30.0), (100, 10.0)), 100),  # straight: all of it helps
        (((10, 50.0), (60, 45.0), (100, 10.0)), 100),  # steeper behind: no knee
        (((20, 9.0),), 20),
        (((10, 90.0), (30, 36.0), (100, 28.0)), 30),
    ],
)
def test_the_share_at_the_knee(curve: tuple[tuple[int, float], ...], share: int) -> None:
    assert share_at_knee(curve) == share
