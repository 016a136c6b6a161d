"""A claim has three verdicts: the paper's planner reaches its figure here, ours does, and ours is better than all."""

from __future__ import annotations

from dataclasses import replace
from math import exp, inf, isclose, log, sqrt

import pytest

from lab.evaluate.claims import AT_LEAST, AT_MOST, BEST, PRINTED, TIMES, PaperClaim
from lab.evaluate.verdicts import (
    NO,
    NO_FIGURE,
    NOT_DECIDED,
    OUT_OF_REACH,
    YES,
    EvaluationClaim,
    MeasuredFigure,
    PlannerValue,
    count_verdicts,
    judge_claims,
    measured_alike,
    ratio_interval,
)
from solvers.planners.names import JOINT

LESS = PaperClaim("X1", "cost", "cost", TIMES, 2.0, ("theirs",), "paper", "scaled", miss="it is dear")
MORE = replace(LESS, metric="throughput", is_more_better=True)
LIMIT = replace(LESS, metric="late", rule=AT_MOST)
FLOOR = replace(MORE, rule=AT_LEAST, figure=9.0)


def claim(paper: PaperClaim, theirs: float, ours: float, other: float, reproduced: float = 1.0) -> EvaluationClaim:
    values = {"theirs": theirs, "other": other, "paper": reproduced, JOINT: ours}
    return EvaluationClaim(paper, measured_alike([values, values, values]))


@pytest.mark.parametrize(
    ("paper", "theirs", "value", "answer"),
    [
        (LESS, 10.0, 5.0, YES),
        (LESS, 10.0, 5.1, NO),  # 1.96 times is not twice
        (LESS, 10.0, 0.0, YES),
        (MORE, 10.0, 20.0, YES),
        (MORE, 10.0, 19.0, NO),
        (FLOOR, 1.0, 9.0, YES),
        (FLOOR, 1.0, 8.9, NO),
        (LIMIT, 9.0, 2.0, YES),
        (LIMIT, 9.0, 2.1, NO),
        (replace(LESS, rule=PRINTED), 10.0, 1.0, NO_FIGURE),
    ],
)
def test_a_planner_reaches_the_papers_figure_or_it_does_not(
    paper: PaperClaim, theirs: float, value: float, answer: str
) -> None:
    assert claim(paper, theirs, value, 7.0).reaches(JOINT) == answer
    assert claim(paper, theirs, 3.0, 7.0, reproduced=value).reaches("paper") == answer


def test_a_baseline_whose_rule_is_open_is_beaten_in_each_of_its_readings() -> None:
    paper = replace(MORE, baselines=("theirs", "other"))
    assert claim(paper, 5.0, 20.0, 10.0).reaches(JOINT) == YES
    assert claim(paper, 5.0, 20.0, 11.0).reaches(JOINT) == NO
    assert claim(paper, 5.0, 20.0, 10.0).figures()["paper_baseline"] == {"theirs": 5.0, "other": 10.0}
    best = claim(replace(LESS, baselines=(BEST,)), 10.0, 4.0, 9.0)
    assert (best.paper_baselines, best.ratio(4.0)) == ({BEST: 9.0}, 2.25)


def test_what_no_planner_could_reach_is_no_miss() -> None:
    values = {"theirs": 6.0, "paper": 7.0, JOINT: 9.9}
    offered_ten = EvaluationClaim(MORE, measured_alike([values], 10.0))
    assert offered_ten.largest_ratio == pytest.approx(10 / 6)
    assert offered_ten.reaches(JOINT) == offered_ten.reaches("paper") == OUT_OF_REACH
    offered_twelve = EvaluationClaim(MORE, measured_alike([values], 12.0))
    assert offered_twelve.reaches(JOINT) == NO
    assert EvaluationClaim(LESS, measured_alike([values])).largest_ratio == inf


def test_ours_is_best_only_if_it_beats_the_papers_planner_and_every_baseline() -> None:
    assert claim(LESS, 10.0, 4.0, 6.0, reproduced=5.0).ours_is_best == YES
    assert claim(LESS, 10.0, 4.0, 6.0, reproduced=3.0).ours_is_best == NO
    assert claim(LESS, 10.0, 4.0, 3.0, reproduced=5.0).ours_is_best == NO
    assert claim(LESS, 10.0, 4.0, 4.0, reproduced=5.0).ours_is_best == NO  # as good is not better
    assert claim(LIMIT, 1.0, 0.0, 1.0).ours_is_best == YES
    assert claim(LIMIT, 0.0, 0.0, 1.0).ours_is_best == NO


def with_prices(ours: PlannerValue, theirs: PlannerValue, seeds: int = 2) -> EvaluationClaim:
    return EvaluationClaim(LESS, MeasuredFigure([{"theirs": theirs, "paper": theirs, JOINT: ours}] * seeds))


def test_ours_is_not_better_at_a_higher_price_or_a_lower_attainment() -> None:
    theirs = PlannerValue(10.0, 5.0, 0.99)
    assert with_prices(PlannerValue(4.0, 5.0, 0.99), theirs).ours_is_best == YES
    dearer, late = (with_prices(PlannerValue(4.0, *found), theirs) for found in ((5.1, 0.99), (5.0, 0.98)))
    assert dearer.ours_is_best == late.ours_is_best == NO
    assert dearer.figures()["rivals"]["theirs"]["ours_is_dearer"]
    assert late.figures()["rivals"]["theirs"]["ours_attains_less"]


def test_one_seed_does_not_decide_who_is_better() -> None:
    found = with_prices(PlannerValue(4.0, 5.0, 0.99), PlannerValue(10.0, 5.0, 0.99), seeds=1)
    assert found.ours_is_best == NOT_DECIDED
    assert found.reaches(JOINT) == YES
    assert found.figures()["rivals"]["theirs"]["interval"] is None


def test_the_interval_is_students_of_the_logarithms() -> None:
    mean, low, high = ratio_interval([1.0, 1.1, 1.21])
    assert mean == pytest.approx(1.1)
    width = 4.302653 * log(1.1) / sqrt(3)  # t of two degrees of freedom at 97.5 %
    assert low == pytest.approx(1.1 * exp(-width))
    assert high == pytest.approx(1.1 * exp(width))
    assert ratio_interval([2.0]) == (2.0, 0.0, inf)
    assert ratio_interval([inf, 3.0, inf]) == (inf, 3.0, inf)
    assert all(isclose(value, 2.0) for value in ratio_interval([2.0, 2.0]))


def test_seeds_that_disagree_do_not_decide() -> None:
    by_seed = [{"theirs": 10.0, "paper": 10.0, JOINT: ours} for ours in (9.0, 11.0, 9.5)]
    assert EvaluationClaim(LESS, measured_alike(by_seed)).ours_is_best == NOT_DECIDED


def test_figures_say_why_a_claim_is_missed_and_counts_add_up() -> None:
    kept, missed = claim(LESS, 10.0, 4.0, 6.0, reproduced=5.0).figures(), claim(LESS, 10.0, 7.0, 6.0).figures()
    assert (kept["miss"], missed["miss"]) == ("", "it is dear")
    assert (kept["ratio"], kept["reproduced_ratio"]) == (2.5, 2.0)
    assert count_verdicts([kept, missed]) == {
        "paper_planner_reaches": {YES: 2},
        "ours_reaches": {YES: 1, NO: 1},
        "ours_is_best": {YES: 1, NO: 1},
    }


def test_a_figure_that_no_claim_is_about_is_refused() -> None:
    with pytest.raises(KeyError):
        judge_claims("hetsev", {})
