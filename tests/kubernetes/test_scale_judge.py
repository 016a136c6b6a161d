"""The judge of scalers' writes finds each kind of fault that is planted, and nothing in what is right."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from tests.kubernetes.audit import ScaleWritten
from tests.kubernetes.scale_judge import DecidedRow, ScaleJudge

BEGAN = datetime(2026, 6, 1, tzinfo=UTC)
ROWS = [
    DecidedRow(1, BEGAN, "ranker", 3, 5, "written", "10", ""),
    DecidedRow(2, BEGAN + timedelta(minutes=1), "ranker", 5, 5, "steady", "", ""),
    DecidedRow(3, BEGAN + timedelta(minutes=15), "ranker", 6, 7, "written", "13", ""),
]
WRITTEN = [
    ScaleWritten("scaler", "update", "ranker", "10", 11, 5, BEGAN + timedelta(seconds=5)),
    ScaleWritten("ines", "patch", "ranker", "", 12, 6, BEGAN + timedelta(minutes=4)),
    ScaleWritten("scaler", "update", "ranker", "13", 14, 7, BEGAN + timedelta(minutes=16)),
]


def judge(written: list[ScaleWritten], rows: list[DecidedRow]) -> ScaleJudge:
    return ScaleJudge("scaler", written, rows, {"ranker": 3})


def test_what_is_right_has_no_violation() -> None:
    assert list(judge(WRITTEN, ROWS).violations()) == []


def test_a_write_that_was_refused_before_the_next_plan_wrote_at_its_version_was_not_done() -> None:
    for wanted in (6, 7):
        refused = replace(ROWS[2], wanted=wanted, state="overtaken", outcome="409 four times")
        again = replace(ROWS[2], generation=4, at=BEGAN + timedelta(minutes=15, seconds=30))
        assert list(judge(WRITTEN, [*ROWS[:2], refused, again]).violations()) == []
        (violation,) = judge(WRITTEN, [*ROWS[:2], replace(refused, state="written"), again]).violations()
        assert violation.endswith("was not written")


@pytest.mark.parametrize(
    ("written", "rows", "says"),
    [
        (WRITTEN, [ROWS[0], ROWS[1], replace(ROWS[2], replicas=5)], "replaced 6"),
        ([WRITTEN[0], replace(WRITTEN[1], at=BEGAN + timedelta(minutes=9)), WRITTEN[2]], ROWS, "came 0:07:00 after"),
        (WRITTEN, [ROWS[0], replace(ROWS[1], at=BEGAN, wanted=4), ROWS[2]], "of plan 1 came after DecidedRow"),
        (WRITTEN, [replace(ROWS[0], generation=4), *ROWS[1:]], "of plan 3 came after plan 4"),
        (WRITTEN, ROWS[:2], "was never decided"),
        (WRITTEN[:2], ROWS, "was not written"),
        (WRITTEN, [replace(ROWS[0], state="overtaken"), *ROWS[1:]], "was written"),
        ([*WRITTEN, replace(WRITTEN[2], verb="patch", after=15, replicas=9)], ROWS, "to settle a write"),
    ],
)
def test_each_fault_is_found(written: list[ScaleWritten], rows: list[DecidedRow], says: str) -> None:
    assert any(says in violation for violation in judge(written, rows).violations())
