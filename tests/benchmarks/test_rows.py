"""Rows say what a timed plan told: gaps at marks, medians of what is served, exponents."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.rows import exponent, gap, gap_at, gap_seconds, medians, row


def told(*better: tuple[float, float, float | None], planned: float = 9.0, unserved: int = 0) -> list[dict[str, Any]]:
    lines: list[dict[str, Any]] = [
        {"what": "better", "at": at, "cost": cost, "bound": bound, "method": "m"} for at, cost, bound in better
    ]
    judged = {"cost": 110.0, "unserved_cost": 0.0, "unserved": unserved, "bound": 100.0, "method": "m", "work": 7}
    judged |= {"instances": 3, "gpus_used": 2, "violations": []}
    return [{"what": "loaded"}, *lines, {"what": "planned", "at": planned}, {"what": "judged", **judged}]


def test_a_gap_leaves_out_what_is_unserved_in_both_and_says_nothing_without_a_bound() -> None:
    assert gap(130.0, 120.0, 20.0) == pytest.approx(0.1)
    assert gap(130.0, None) is None
    assert gap(130.0, 20.0, 20.0) is None


def test_the_first_plan_is_compared_with_the_bound_of_the_end() -> None:
    found = row(told((0.2, 130.0, None), (2.0, 120.0, 90.0)), 500.0, 10.0)
    assert found["first_seconds"] == 0.2
    assert found["first_gap"] == pytest.approx(0.3)
    assert found["gap"] == pytest.approx(0.1)


def test_marks_show_what_was_known_then_and_the_end_once_it_was_over() -> None:
    found = row(told((0.2, 130.0, None), (2.0, 120.0, 96.0)), 500.0, 10.0)
    assert found["gap_1s"] is None
    assert found["gap_3s"] == pytest.approx(0.25)
    assert found["gap_10s"] == pytest.approx(0.1)
    assert "gap_60s" not in found


def test_a_mark_before_the_first_plan_shows_nothing() -> None:
    assert gap_at([], 1.0) is None


def test_rows_with_unserved_load_are_not_counted_in_medians() -> None:
    rows = [
        row(told((0.2, 130.0, 100.0), unserved=unserved), peak_mb, 10.0)
        for unserved, peak_mb in ((0, 100.0), (1, 900.0))
    ]
    assert medians(rows)["peak_mb"] == 100.0
    assert (medians(rows)["counted"], medians(rows)["of"]) == (1, 2)


def test_the_same_gap_is_reached_when_it_was_first_known() -> None:
    lines = told((0.2, 130.0, 100.0), (2.0, 120.0, 100.0))
    found = row(lines, 500.0, 10.0)
    assert gap_seconds(lines, found, 0.25) == 2.0
    assert gap_seconds(lines, found, 0.1) == 9.0


def test_an_exponent_is_the_slope_between_logarithms() -> None:
    assert exponent([(10, 3.0), (100, 30.0), (1000, 300.0)]) == pytest.approx(1)
    assert exponent([(10, 3.0)]) is None
