"""Execs over SM%, and what stretches them."""

from __future__ import annotations

import numpy as np
import pytest

from solvers.latency.curves import by_sm, execs_ms, flat_by_sm, slowdown

CURVE = ((10, 21.0), (20, 11.0), (100, 7.0))


def test_a_curve_is_linear_between_its_points_and_infinite_outside() -> None:
    table = by_sm(CURVE)
    assert table.shape == (101,)
    assert table[[10, 15, 20, 60, 100]] == pytest.approx([21.0, 16.0, 11.0, 9.0, 7.0])
    assert np.all(np.isinf(table[:10]))
    assert np.isinf(by_sm(((10, 2.0), (90, 1.0)))[91])
    assert flat_by_sm(CURVE)[[0, 9, 15]] == pytest.approx([21.0, 21.0, 16.0])


def test_a_profile_gives_a_row_for_each_batch_in_order() -> None:
    batches, table = execs_ms({8: ((30, 40.0), (100, 22.0)), 1: CURVE})
    assert batches == [1, 8]
    assert table.shape == (2, 101)
    assert table[1, 65] == pytest.approx(31.0)


def test_neighbours_and_lower_clocks_stretch_an_exec() -> None:
    assert slowdown(0.25, 1.2) == pytest.approx(1.3)
    assert slowdown(0.25, np.array([0.0, 2.0]), 1.5, 0.8) == pytest.approx([1.5**0.8, 1.5 * 1.5**0.8])
