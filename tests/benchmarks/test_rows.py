"""Rows sum up a timed plan: gaps at marks, medians of what is served."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.rows import bill_blind, gap, gap_at, medians, row, summary


def told(
    *better: tuple[float, float, float | None],
    planned: float = 9.0, unserved: int = 0, cost: float = 110.0, complete_from: float = 0.0, broken: str = "",
) -> list[dict[str, Any]]:  # fmt: skip
    lines: list[dict[str, Any]] = [
        {"what": "better", "at": at, "cost": cost, "bound": bound, "method": "m", "serves_all": at >= complete_from}
        for at, cost, bound in better
    ]
    judged = {"cost": cost, "unserved_cost": 0.0, "unserved": unserved, "bound": 100.0, "method": "m", "work": 7}
    judged |= {"instances": 3, "gpus_used": 2, "violations": [broken] if broken else []}
    planning = {"what": "planned", "at": planned, "cpu_seconds": 12.0}
    return [{"what": "loaded"}, *lines, planning, {"what": "judged", **judged}]


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


@pytest.mark.parametrize(
    ("complete_from", "unserved", "seconds"), [(0.0, 0, 0.2), (1.0, 0, 2.0), (5.0, 0, 9.0), (5.0, 1, None)]
)
def test_a_plan_is_complete_when_the_first_that_serves_all_is_found_or_at_the_end(
    complete_from: float, unserved: int, seconds: float | None
) -> None:
    lines = told((0.2, 130.0, None), (2.0, 120.0, 100.0), complete_from=complete_from, unserved=unserved)
    assert row(lines, 500.0, 10.0)["complete_seconds"] == seconds


def test_medians_count_what_is_proved_and_what_breaks_a_rule_and_name_the_worst() -> None:
    lines = [told((0.2, 130.0, 100.0), cost=100.0), told((0.4, 130.0, 100.0)), told((0.6, 130.0, 100.0), cost=104.0)]
    lines.append(told((0.8, 130.0, 100.0), cost=100.0, broken="n/0: memory_fits: 9 GiB"))
    found = medians([row(messages, 500.0, 10.0) for messages in lines])
    assert (found["proved"], found["of"], found["counted"], found["with_violations"]) == (1, 4, 3, 1)
    assert (found["gap"], found["worst_gap"]) == (pytest.approx(0.04), pytest.approx(0.1))
    assert (found["complete_seconds"], found["worst_complete_seconds"]) == (0.4, 0.6)
    assert summary(found).startswith("proved 1 of 4; 3 serve everything; gap 4 % in the median, 10 % at most; ")
    assert summary(found).endswith("1 break a rule")


def test_a_saving_is_of_what_the_blind_plan_costs_where_both_serve_everything() -> None:
    ours = row(told(cost=105.0), 500.0, 10.0)
    found = bill_blind(ours, row(told(cost=140.0), 500.0, 10.0))
    assert (found["blind_cost"], found["saving"]) == (140.0, pytest.approx(0.25))
    assert bill_blind(ours, row(told(cost=140.0, unserved=1), 500.0, 10.0))["saving"] is None
