"""The forecast is scored on loads of several kinds by a scorer that knows nothing of how it works."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from lab.forecast_scores import LEARNING_SECONDS, score, traces
from solvers.forecast import Forecast, PlannedRate, expect
from tests.support.soak import scaled

TRACES = traces(range(scaled(16, 4)))


def declared_forever(samples: object, plan: PlannedRate) -> Forecast:
    """A forecaster that never learns."""
    return Forecast(plan.declared, 0.0, 0.0, "held")


def test_the_rate_of_a_moving_load_hardly_changes_and_stays_near_the_upper_end_of_its_swing() -> None:
    moving = score(expect, TRACES["moving"])
    assert moving.changes_per_hour <= 3
    assert moving.headroom <= 0.25
    assert moving.over_share <= 0.12


def test_a_wave_is_followed_at_a_small_headroom() -> None:
    wave = score(expect, TRACES["wave"])
    assert wave.changes_per_hour <= 8
    assert wave.headroom <= 0.2
    assert wave.most <= 1.3


@pytest.mark.slow
def test_a_day_of_few_requests_is_followed_as_closely() -> None:
    few = score(expect, TRACES["few"])
    assert few.changes_per_hour <= 1
    assert few.headroom <= 0.16
    assert few.p99 <= 1.2
    assert few.over_share <= 0.2


def test_noise_moves_no_rate() -> None:
    assert score(expect, TRACES["steady"]).changes_per_hour == 0


@pytest.mark.slow
def test_bursts_are_not_paid_for_all_the_time() -> None:
    bursty = score(expect, TRACES["bursty"])
    assert bursty.headroom <= 0.55
    assert bursty.over_share <= 0.07


def test_a_spike_moves_no_rate_for_long() -> None:
    spiked = score(expect, TRACES["spike"])
    assert spiked.changes_per_hour <= 2
    assert spiked.headroom <= 0.25


def test_the_scorer_counts_every_moment_above_a_rate_that_never_moves() -> None:
    never = score(declared_forever, TRACES["moving"])
    assert never.over_share > 0.4
    assert never.changes_per_hour == 0
    twice = score(declared_forever, TRACES["moving"], declared=2.0)
    assert twice.over_share == 0
    assert twice.headroom == pytest.approx(2 * (1 + never.headroom) - 1)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["moving", "wave", "few"])
def test_hours_overspend_as_seldom_as_the_risk_says_and_a_smaller_risk_costs_more(kind: str) -> None:
    risk, hours = 0.2, 15
    long = [replace(trace, seconds=int(LEARNING_SECONDS) + hours * 3600) for trace in TRACES[kind][:4]]
    found, careful = score(expect, long, risk=risk), score(expect, long, risk=0.02)
    chance = 1.645 * math.sqrt(risk * (1 - risk) / (hours * len(long)))  # 95 % of draws are below
    assert careful.overspent_share <= found.overspent_share <= risk + chance
    assert careful.headroom >= found.headroom
