"""The fit of a curve: what was measured stays where it was measured, neighbours get what is theirs."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from math import exp, log

import numpy as np
import pytest

from solvers.learning.fit import CurveFit, covariance, fit_curve, inflate_others
from solvers.learning.region import Region
from solvers.learning.tuning import FilterTuning, PriorTuning

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
SLOW = log(1.2)


def region(
    sm_percent: int, mean: float, batch: int = 8, *, is_full: bool = True, since: int = 0, at: int = 60,
    **impacts: float,
) -> Region:  # fmt: skip
    """A region measured between these minutes after noon, beside neighbours with these declared impacts."""
    return Region(
        batch, sm_percent, tuple(sorted(impacts.items())), is_full, mean, 1e-5, 1e-4, 60, 60,
        since=NOON + timedelta(minutes=since), at=NOON + timedelta(minutes=at),
    )  # fmt: skip


def fitted(*regions: Region) -> CurveFit:
    return fit_curve(regions, NOON + timedelta(minutes=60), FilterTuning())


def factor(fit: CurveFit, sm_percent: int, batch: int = 8) -> float:
    return exp(fit.at(batch, sm_percent)[0])


def test_without_measurements_a_curve_is_as_declared() -> None:
    assert factor(fitted(), 30) == 1.0
    assert factor(fitted(replace(region(30, SLOW), n=4)), 30) == 1.0


def test_one_slow_range_is_slow_there_only() -> None:
    fit = fitted(region(20, SLOW), region(30, SLOW), region(60, 0.0), region(100, 0.0))
    assert factor(fit, 30) == pytest.approx(1.2, abs=0.005)
    assert factor(fit, 20) == pytest.approx(1.2, abs=0.005)
    assert factor(fit, 60) == pytest.approx(1.0, abs=0.005)
    assert factor(fit, 80) == pytest.approx(1.0, abs=0.02)
    assert 1.0 < factor(fit, 45) < 1.2


def test_slower_everywhere_that_was_measured_is_expected_elsewhere_too() -> None:
    fit = fitted(region(20, SLOW), region(60, SLOW), region(100, SLOW))
    assert factor(fit, 40) == pytest.approx(1.2, abs=0.02)
    assert factor(fit, 40, batch=1) == pytest.approx(1.2, abs=0.03)
    assert fit.at(8, 20)[1] < fit.at(8, 40)[1] < fit.at(1, 5)[1]


def test_a_margin_stays_in_the_profile_where_nothing_is_known_and_goes_where_much_was_measured() -> None:
    assert fitted().margin_share(8, 30) == 0.0
    fit = fitted(region(30, -0.1), region(40, -0.1))
    assert fit.margin_share(8, 30) == pytest.approx(0.0, abs=0.1)
    assert fit.margin_share(1, 100) > 0.2


def test_planned_times_cover_nine_of_ten_places_that_were_never_measured() -> None:
    prior, draw = PriorTuning(), np.random.default_rng(0)
    places = [(8, 20), (8, 40), (1, 100), (32, 80), (2, 10)]
    among = np.array([[covariance(prior, one, other) for other in places] for one in places])
    spread = 0.1 / float(np.sqrt(among[0, 0]))  # of the logarithm of real over mean times
    margin = 1.2816 * 0.1
    covered, without = [], []
    for _ in range(400):
        truth = spread * draw.multivariate_normal(np.zeros(len(places)), among)
        seen = [region(sm, float(truth[at]) - margin, batch) for at, (batch, sm) in enumerate(places[:2])]
        fit = fitted(*seen)
        for at, place in enumerate(places[2:], start=2):
            planned = margin + fit.at(*place)[0]
            covered.append(truth[at] <= planned + margin * fit.margin_share(*place))
            without.append(truth[at] <= planned)
    assert 0.86 <= float(np.mean(covered)) <= 0.95
    assert float(np.mean(without)) < 0.8  # the margin of what was measured is no margin of what was not


def test_what_is_slow_beside_one_neighbour_only_is_not_the_curves() -> None:
    fit = fitted(region(30, 0.0), region(30, SLOW, bert=0.2), region(30, 0.0, vit=0.2))
    assert factor(fit, 30) == pytest.approx(1.0, abs=0.01)
    assert exp(fit.neighbours["bert"]) == pytest.approx((1.2 * 1.2 - 1) / 0.2, rel=0.1)
    assert fit.neighbours["vit"] == 0.0


def test_what_is_slow_beside_every_neighbour_and_alone_is_the_curves() -> None:
    fit = fitted(region(30, SLOW), region(30, SLOW, bert=0.2), region(30, SLOW, vit=0.1))
    assert factor(fit, 30) == pytest.approx(1.2, abs=0.01)
    assert max(fit.neighbours.values()) < 0.05


def test_without_a_comparison_at_its_place_nothing_is_a_neighbours() -> None:
    fit = fitted(region(30, SLOW, bert=0.2), region(100, 0.0))
    assert factor(fit, 30) == pytest.approx(1.2, abs=0.01)
    assert fit.neighbours == {}


def test_measurements_from_before_a_change_are_no_comparison() -> None:
    fit = fitted(region(30, 0.0, at=20, vit=0.2), region(30, SLOW, since=25, bert=0.2))
    assert factor(fit, 30) == pytest.approx(1.2, abs=0.01)
    assert fit.neighbours == {}


def test_a_neighbour_that_is_declared_harmless_leaves_the_slowest_to_the_curve() -> None:
    fit = fitted(region(30, 0.0), region(30, SLOW, bert=0.0))
    assert factor(fit, 30) == pytest.approx(1.2, abs=0.01)


def test_faster_counts_only_alone_and_with_full_batches() -> None:
    assert factor(fitted(region(30, -0.2)), 30) == pytest.approx(exp(-0.2), abs=0.01)
    assert factor(fitted(region(30, -0.2, is_full=False)), 30) == 1.0
    assert factor(fitted(region(30, -0.2, bert=0.2)), 30) == 1.0
    both = fitted(region(30, -0.2), region(30, -0.3, bert=0.2))
    assert factor(both, 30) == pytest.approx(exp(-0.2), abs=0.01)


def test_when_one_region_changes_those_without_traffic_may_have_changed_too() -> None:
    before = (region(30, 0.0), region(35, 0.0, at=10), region(100, 0.0))
    after = (replace(before[0], mean=SLOW, since=NOON + timedelta(minutes=50)), *before[1:])
    found = inflate_others(before, after, PriorTuning())
    assert found[0] == after[0]
    assert found[2] == after[2]
    assert found[1].variance > 0.5 * SLOW**2
    assert factor(fitted(*found), 35) > 1.1
    assert factor(fitted(*found), 100) == pytest.approx(1.0, abs=0.01)
