"""A margin keeps the share of hours that overspend their budget near the risk, whatever the loads are."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from solvers.forecast import Margin, MarginRules, Sample
from solvers.forecast.margin import (
    HALF_LIFE_HOURS,
    MOST_MARGIN,
    MOST_PACE,
    STEP_SHARE,
    LoadedSpan,
    MarginScores,
    make_margin_rules,
    move_level,
    needed_margin,
    upper_quantile,
)
from tests.support.soak import scaled

SPAN_SECONDS = 120.0
SPANS_AN_HOUR = 30
RISKS = st.floats(0.01, 0.5)
NEEDS = st.lists(st.floats(1e-6, 10.0), min_size=1, max_size=300)


def missed_hours(needs: Sequence[float], risk: float) -> int:
    """Counts the hours that need more than the quantile of those before them."""
    level, missed = risk, 0
    for hour, need in enumerate(needs):
        is_missed = need > upper_quantile([(before, 1.0) for before in needs[:hour]], level)
        missed += is_missed
        level = move_level(level, risk, is_missed)
    return missed


def adversary(hours: int, risk: float) -> list[float]:
    """Returns needs that exceed what is given wherever that is finite."""
    level, needs = risk, list[float]()
    for _ in range(hours):
        given_margin = upper_quantile([(before, 1.0) for before in needs], level)
        is_missed = math.isfinite(given_margin)
        needs.append(given_margin + 1.0 if is_missed else 1e-6)
        level = move_level(level, risk, is_missed)
    return needs


def within_theorem(needs: Sequence[float], risk: float) -> bool:
    hours = len(needs)
    return abs(missed_hours(needs, risk) / hours - risk) <= (1 + STEP_SHARE) / (STEP_SHARE * hours) + 1e-9


# The theorem


@given(NEEDS, RISKS)
@settings(max_examples=scaled(500, 25), deadline=None)
def test_the_rate_of_missed_hours_is_within_the_theorem_of_any_sequence(needs: list[float], risk: float) -> None:
    assert within_theorem(needs, risk)


@pytest.mark.parametrize("risk", [0.02, 0.05, 0.2])
def test_the_rate_of_missed_hours_is_within_the_theorem_of_adversaries(risk: float) -> None:
    rising = [float(hour + 1) for hour in range(600)]
    alternating = [1.0 if hour % 2 else 2.0 + hour for hour in range(600)]
    late = [1e-6] * 300 + [float(hour + 1) for hour in range(300)]
    for needs in (adversary(600, risk), rising, alternating, late):
        assert within_theorem(needs, risk)


def counted(margin: Margin, rules: MarginRules, hours: int, load: Callable[[Margin, float], float]) -> int:
    """Plays hours in which the plan is 100 a second and its margin; returns how many hours were missed."""
    at = 0.0
    for _ in range(hours * SPANS_AN_HOUR):
        at += SPAN_SECONDS
        planned = 100.0 * (1 + margin.share)
        margin.add(Sample(at, SPAN_SECONDS, load(margin, planned) * SPAN_SECONDS), planned, rules)
    return sum(margin.missed)


@pytest.mark.slow
@pytest.mark.parametrize("risk", [0.05, 0.2])
def test_a_load_that_is_always_above_its_plan_misses_no_more_hours_than_the_theorem_says(risk: float) -> None:
    rules, draw = MarginRules(risk), random.Random(1)
    loads: Sequence[Callable[[Margin, float], float]] = (
        lambda _, planned: 1.3 * planned,
        lambda margin, planned: (1.3 if len(margin.missed) % 2 else 0.9) * planned,
        lambda margin, planned: planned * draw.choice((0.8, 1.2)),
        lambda margin, planned: 100.0 + len(margin.missed),
    )
    for load in loads:
        assert counted(Margin(), rules, 150, load) <= 150 * risk + (risk + STEP_SHARE) / STEP_SHARE


# The margin


@given(
    st.lists(st.tuples(st.floats(0.0, 500.0), st.floats(1.0, 300.0)), min_size=1, max_size=12), st.floats(0.0, 300.0)
)
def test_the_needed_margin_is_the_least_that_suffices(loads: list[tuple[float, float]], most: float) -> None:
    spans = [LoadedSpan(60.0, requests, bare, bare) for requests, bare in loads]

    def above(margin: float) -> float:
        return sum(max(0.0, span.requests - span.bare * (1 + margin)) for span in spans)

    needed = needed_margin(spans, most)
    assert above(needed) <= most + 1e-6
    assert needed == 0 or above(needed * (1 - 1e-6) - 1e-9) > most - 1e-3


def test_the_quantile_leaves_no_more_than_its_level_above() -> None:
    scores = [(float(score), 1.0) for score in range(1, 101)]
    assert upper_quantile(scores, 0.05) == 95
    assert upper_quantile(scores, 0.5) == 50
    assert [upper_quantile(scores, level) for level in (0.0, 1.0)] == [math.inf, 0.0]
    for lower, higher in itertools.pairwise(level / 50 for level in range(51)):
        assert upper_quantile(scores, lower) >= upper_quantile(scores, higher)


def test_calm_hours_lower_a_margin_to_what_they_need() -> None:
    margin = Margin(share=0.1)
    assert counted(margin, MarginRules(), 2, lambda *_: 100.0) == 0
    assert margin.share == 0.0


def test_a_single_bad_hour_is_what_risk_allows_and_a_second_raises_the_margin_at_once() -> None:
    margin, rules = Margin(), MarginRules(0.05)
    counted(margin, rules, 12, lambda *_: 100.0)
    counted(margin, rules, 1, lambda *_: 130.0)
    assert (sum(margin.missed), margin.share) == (1, 0.0)
    for span in range(10):
        at = 13 * 3600 + SPAN_SECONDS * (span + 1)
        margin.add(Sample(at, SPAN_SECONDS, 130 * SPAN_SECONDS), 100 * (1 + margin.share), rules)
    assert 0.1 < margin.share <= MOST_MARGIN
    counted(margin, rules, int(3 * HALF_LIFE_HOURS), lambda *_: 100.0)
    assert margin.share == 0.0


def test_a_new_service_whose_load_climbs_again_and_again_gets_a_margin_within_minutes() -> None:
    margin, rules = Margin(), make_margin_rules(0.05, 98.0, 20.0, 15.0)
    for span in range(20):
        at, load = 60.0 * (span + 1), 120.0 if span % 2 else 100.0
        margin.add(Sample(at, 60.0, load * 60.0), 100 * (1 + margin.share), rules)
    assert 0.1 < margin.share <= MOST_PACE


def test_a_rise_beyond_what_a_margin_may_cover_raises_none_and_neither_does_what_plans_tolerate() -> None:
    for load in (400.0, 102.0):
        margin, rules = Margin(), make_margin_rules(0.05, 98.0, 20.0, 15.0)
        for span in range(10):
            at = 60.0 * (span + 1)
            margin.add(Sample(at, 60.0, (load if span % 3 == 2 else 100.0) * 60.0), 100 * (1 + margin.share), rules)
        assert margin.share == 0.0


@pytest.mark.slow
def test_a_smaller_risk_gives_no_smaller_margin() -> None:
    def given_margin(risk: float) -> float:
        margin, draw = Margin(), random.Random(3)
        counted(margin, MarginRules(risk), 60, lambda *_: 100 * draw.choice((1.0, 1.0, 1.0, 1.1, 1.2)))
        return margin.share

    margins = [given_margin(risk) for risk in (0.02, 0.05, 0.2, 0.5)]
    assert margins == sorted(margins, reverse=True)


def test_what_was_not_planned_for_is_not_learned_from() -> None:
    margin = Margin()
    margin.add(Sample(100.0, SPAN_SECONDS, 1e6), 0.0, MarginRules())
    assert margin == Margin()


@given(st.lists(st.floats(0.0, 2.0), max_size=60), st.floats(0.0, 0.05), st.floats(0.001, 0.5), st.floats(0.001, 0.5))
@settings(max_examples=scaled(300, 25), deadline=None)
def test_a_smaller_risk_never_has_a_smaller_margin(needs: list[float], debt: float, one: float, other: float) -> None:
    needed = tuple((ago, need) for ago, need in enumerate(needs) if need > 0)
    scores = MarginScores(len(needs), needed, 0.05, debt)
    assert 0.0 <= scores.margin(max(one, other)) <= scores.margin(min(one, other)) <= MOST_MARGIN


def test_scores_are_those_of_the_hours_that_needed_a_margin() -> None:
    rules, margin = MarginRules(0.2), Margin()
    counted(margin, rules, 6, lambda margin, _: 120.0 if len(margin.missed) in (1, 4) else 90.0)
    scores = margin.scores()
    assert scores.hours == 6
    assert [ago for ago, _ in scores.needed] == [1, 4]
    assert all(need == pytest.approx(120.0 * 0.98 / 100.0 - 1.0, abs=1e-3) for _, need in scores.needed)
    assert scores.margin(0.2) == margin.share
    assert scores.margin(0.5) <= margin.share <= scores.margin(0.01)


def test_at_another_risk_the_debt_is_in_proportion_and_scores_have_told_the_margin() -> None:
    margin, at = Margin(), 0.0

    def play(rules: MarginRules, factor: float) -> None:
        nonlocal at
        for _ in range(SPANS_AN_HOUR):
            at += SPAN_SECONDS
            planned = 100.0 * (1 + margin.share)
            margin.add(Sample(at, SPAN_SECONDS, planned * factor * SPAN_SECONDS), planned, rules)

    for hour in range(12):
        play(MarginRules(0.2), 1.2 if hour % 3 == 1 else 0.9)
    debt, told = margin.debt, margin.scores().margin(0.02)
    assert debt > 0.01
    play(MarginRules(0.02), 0.9)
    assert margin.debt == pytest.approx(debt / 10 - 0.01 * 0.02)
    assert margin.share == pytest.approx(told, abs=0.02)
