"""The ways to follow rates that all moved are judged beside what runs, and counted work finds them again."""

from __future__ import annotations

import pytest

from benchmarks.families import family
from benchmarks.moved_fleet import SearchLimits, compare, running_plan


@pytest.mark.slow
def test_each_way_is_a_right_plan_and_counted_work_finds_it_again() -> None:
    problem, limits = family("A", 24, 8, 3, load=0.5), SearchLimits(0.0, 4, 1)
    plan = running_plan(problem, limits)
    rows, again = (
        [row | {"cpu_seconds": 0} for row in compare(problem, plan, 0.05, limits)] for _ in range(2)
    )  # fmt: skip
    assert rows == again
    assert [row["way"] for row in rows] == ["repaired", "from nothing", "from what runs"]
    for row in rows:
        assert not row["violations"] and not row["unserved"]
        assert row["value"] == pytest.approx(row["cost"] + row["churn"])
        assert row["handed_over"] <= row["copies"]
    repaired, _, searched = rows
    assert searched["value"] <= repaired["value"]


@pytest.mark.slow
def test_rates_that_hardly_move_are_followed_without_a_hand_over() -> None:
    problem, limits = family("A", 16, 8, 3), SearchLimits(0.0, 1, 1)
    repaired, *_ = compare(problem, running_plan(problem, limits), 1e-9, limits)
    assert repaired["handed_over"] == 0 and repaired["churn"] == 0
