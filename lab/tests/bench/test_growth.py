"""Growth is an exponent of times at which sizes reach the same gap."""

from __future__ import annotations

import pytest

from benchmarks.rows import row
from lab.bench.growth import exponent, gap_seconds
from tests.benchmarks.test_rows import told


def test_the_same_gap_is_reached_when_it_was_first_known() -> None:
    lines = told((0.2, 130.0, 100.0), (2.0, 120.0, 100.0))
    found = row(lines, 500.0, 10.0)
    assert gap_seconds(lines, found, 0.25) == 2.0
    assert gap_seconds(lines, found, 0.1) == 9.0


def test_an_exponent_is_the_slope_between_logarithms() -> None:
    assert exponent([(10, 3.0), (100, 30.0), (1000, 300.0)]) == pytest.approx(1)
    assert exponent([(10, 3.0)]) is None
