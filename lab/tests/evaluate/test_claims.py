"""A claim holds only where ours reaches the paper's figure and no baseline is better."""

from __future__ import annotations

from math import inf

import pytest

from lab.evaluate.claims import EvaluationClaim, PaperMeasure

LESS = PaperMeasure("X1", "cost", 2.0, "theirs", "paper", "scaled", "")
MORE = PaperMeasure("X2", "throughput", 2.0, "theirs", "paper", "scaled", "", is_more_better=True)
FLOOR = PaperMeasure("X4", "throughput", 9.0, "theirs", "paper", "scaled", "", is_more_better=True, is_limit=True)
LIMIT = PaperMeasure("X3", "violations", 2.0, "theirs", "paper", "scaled", "", is_limit=True)


def claim(measure: PaperMeasure, theirs: float, ours: float, other: float, paper: float = 1.0) -> EvaluationClaim:
    return EvaluationClaim(measure, {"theirs": theirs, "other": other, "paper": paper, "joint": ours}, 3)


@pytest.mark.parametrize(
    ("measure", "theirs", "ours", "other", "holds"),
    [
        (LESS, 10.0, 5.0, 6.0, True),
        (LESS, 10.0, 5.1, 6.0, False),  # 1.96 times is not twice
        (LESS, 10.0, 5.0, 4.9, False),  # another baseline is cheaper
        (MORE, 10.0, 20.0, 15.0, True),
        (MORE, 10.0, 19.0, 15.0, False),
        (MORE, 10.0, 20.0, 21.0, False),
        (FLOOR, 1.0, 9.0, 3.0, True),
        (FLOOR, 1.0, 8.9, 3.0, False),
        (LIMIT, 9.0, 2.0, 3.0, True),
        (LIMIT, 9.0, 2.1, 3.0, False),
        (LIMIT, 9.0, 1.5, 1.0, False),
    ],
)
def test_a_claim_holds_or_it_does_not(
    measure: PaperMeasure, theirs: float, ours: float, other: float, holds: bool
) -> None:
    assert claim(measure, theirs, ours, other).holds is holds


def test_the_papers_own_planner_is_no_baseline() -> None:
    found = claim(LESS, 10.0, 5.0, 6.0, paper=1.0)
    assert found.best_baseline == 6.0
    assert found.figures()["reproduced"] == 1.0


def test_figures_have_a_ratio_above_one_where_ours_is_better() -> None:
    assert claim(LESS, 10.0, 4.0, 6.0).figures()["ratio"] == 2.5
    assert claim(MORE, 10.0, 25.0, 6.0).figures()["ratio"] == 2.5
    nothing_missed = claim(LIMIT, 1.0, 0.0, 1.0)
    assert nothing_missed.ratio == inf
    assert nothing_missed.figures()["ratio"] is None
    assert set(nothing_missed.figures()) == {
        "id", "metric", "paper", "reproduced", "best_baseline", "ours", "paper_baseline", "ratio", "holds", "truth",
        "seeds", "note",
    }  # fmt: skip
