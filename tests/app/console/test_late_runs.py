"""Since when a service has been late: a run of late minutes, which five minutes in time end."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from app.console.late_runs import LateRun, find_late_run
from app.store.fleet.late_minutes import AnsweredSpan

TEN = datetime(2026, 3, 2, 10, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def spans(minutes: str) -> list[AnsweredSpan]:
    """A minute for each letter: late, in time, or a dot for one without requests."""
    shares = {"l": 0.5, "t": 0.99}
    return [
        AnsweredSpan("shop/a", TEN + at * MINUTE, MINUTE, shares[letter])
        for at, letter in enumerate(minutes)
        if letter in shares
    ]


@pytest.mark.parametrize(
    ("minutes", "begins", "ends", "is_over"),
    [
        ("lll", 0, 3, False),
        ("tttlltl", 3, 7, False),
        ("l....l", 0, 6, False),
        ("ltttttl", 6, 7, False),
        ("tlltttt", 1, 3, False),
        ("tllttttt", 1, 3, True),
    ],
)
def test_a_run_of_late_minutes_ends_after_five_in_time(minutes: str, begins: int, ends: int, is_over: bool) -> None:
    assert find_late_run(spans(minutes), 95.0) == LateRun(TEN + begins * MINUTE, TEN + ends * MINUTE, is_over)


@pytest.mark.parametrize("minutes", ["", "....", "tttt"])
def test_without_a_late_minute_there_is_no_run(minutes: str) -> None:
    assert find_late_run(spans(minutes), 95.0) is None
