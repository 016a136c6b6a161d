"""Competing candidates on series that are made here: coverage, silence, and what a season is worth."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from solvers.forecast.contest import Contest, PastErrors

DAY = 48  # steps
QUANTILE = 0.9


def series(seed: int, days: int = 20, swing: float = 0.6, noise: float = 0.05) -> NDArray[np.float64]:
    """A load with a day, a level that wanders, and noise."""
    random = np.random.default_rng(seed)
    at = np.arange(days * DAY)
    level = np.cumsum(random.normal(0.0, 0.015, len(at))) + swing * np.sin(2 * math.pi * at / DAY)
    rates: NDArray[np.float64] = 500.0 * np.exp(level + random.normal(0.0, noise, len(at)))
    return rates


def followed(rates: NDArray[np.float64], lead: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Middle and upper forecasts of the second half, each made `lead` steps before."""
    contest = Contest(lead, DAY, QUANTILE)
    stated = [contest.observe(rate) for rate in rates.tolist()]
    half = len(rates) // 2
    made = stated[half - lead : len(rates) - lead]
    return np.array([each.middle for each in made]), np.array([each.upper for each in made])


def pinball(rates: NDArray[np.float64], upper: NDArray[np.float64]) -> float:
    above = rates - upper
    return float(np.where(above > 0, QUANTILE * above, (QUANTILE - 1) * above).mean())


@pytest.mark.slow
@pytest.mark.parametrize("lead", [1, 6])
def test_the_upper_quantile_covers_what_it_states(lead: int) -> None:
    covered = []
    for seed in range(4):
        rates = series(seed)
        _, upper = followed(rates, lead)
        covered.append(float((rates[len(rates) // 2 :] <= upper).mean()))
    assert np.mean(covered) == pytest.approx(QUANTILE, abs=0.015)
    assert min(covered) > 0.86
    assert max(covered) < 0.94


@pytest.mark.slow
@pytest.mark.parametrize("lead", [1, 3])
def test_the_band_between_the_quantiles_holds_as_often_as_it_states(lead: int) -> None:
    held = []
    for seed in range(4):
        rates = series(seed)
        contest = Contest(lead, DAY, QUANTILE)
        stated = [contest.observe(rate) for rate in rates.tolist()]
        half = len(rates) // 2
        pairs = zip(stated[half - lead : -lead], rates[half:].tolist(), strict=True)
        held.append(np.mean([known.lower <= rate <= known.upper for known, rate in pairs]))
    assert np.mean(held) == pytest.approx(2 * QUANTILE - 1, abs=0.025)


@pytest.mark.slow
def test_a_load_that_doubles_its_noise_is_covered_again() -> None:
    rates = np.concatenate([series(5, days=12, noise=0.03), series(6, days=12, noise=0.12)])
    _, upper = followed(rates, 1)
    assert float((rates[len(rates) // 2 :] <= upper).mean()) == pytest.approx(QUANTILE, abs=0.02)


def test_a_season_is_used_where_there_is_one() -> None:
    lead, rates = 6, series(7, swing=1.0)
    _, upper = followed(rates, lead)
    half = rates[len(rates) // 2 :]
    ratios = np.quantile(rates[lead:] / rates[:-lead], QUANTILE)
    of_last = rates[len(rates) // 2 - lead : len(rates) - lead] * ratios
    assert pinball(half, upper) < 0.7 * pinball(half, of_last)


def test_what_comes_after_silence_is_learned_from_silence() -> None:
    rates = series(8)
    for start in range(30, len(rates), 75):
        rates[start : start + 3] = 0.0  # back after three steps, always
    _, upper = followed(rates, 3)
    half = np.arange(len(rates) // 2, len(rates))
    back = half[(rates[half] > 0) & (rates[half - 3] == 0)]
    assert len(back) > 10
    assert float((upper[back - len(rates) // 2] > 0.5 * rates[back]).mean()) > 0.9
    assert np.isfinite(upper).all()


def test_a_service_that_never_had_a_request_is_expected_to_have_none() -> None:
    contest = Contest(2, DAY, QUANTILE)
    assert [contest.observe(0.0).upper for _ in range(5)] == [0.0] * 5
    assert contest.observe(10.0).upper > 10.0


def test_past_errors_forget_the_oldest() -> None:
    errors = PastErrors(30)
    for error in range(100):
        errors.learn(float(error))
    assert errors.ordered == [float(error) for error in range(70, 100)]
    assert errors.quantile(0.5) == 85.0


def test_how_a_service_came_back_from_silence_is_forgotten_after_two_weeks() -> None:
    contest = Contest(1, DAY, QUANTILE)
    for _ in range(15 * DAY):
        contest.observe(0.0)
        expected = contest.observe(100.0)
    expected = contest.observe(0.0)
    assert expected.middle > 50.0, "it came back each time"
    for _ in range(14 * DAY):
        expected = contest.observe(0.0)
    assert expected.middle == 0.0
