"""Bursty arrivals: what is accepted against a simulation; the lab compares it with the exact chain."""

from __future__ import annotations

import numpy as np
import pytest

from solvers.latency import (
    burstiness_of,
    kernels,
    limits,
    max_bursty_rate,
    max_rate,
    timeout_for,
    variation_of,
)
from tests.solvers.latency.referee import bursty_arrivals, refuses
from tests.support.soak import scaled

MOST_VARIATION = 8.0


def questions(count: int, seed: int, least_ratio: float = 1.05) -> list[tuple[int, float, float, float]]:
    """Batches, variations, ratios of SLO to exec, and percentiles, over the range of the table."""
    random = np.random.default_rng(seed)
    usual = (50.0, 80.0, 90.0, 95.0, 98.0, 99.0, 99.5, 99.9)
    return [
        (
            int(2 ** random.uniform(0.0, 8.0)),
            float(np.exp(random.uniform(np.log(0.003), np.log(MOST_VARIATION)))),
            float(random.uniform(least_ratio, 6.0) if random.random() < 0.6 else np.exp(random.uniform(0.7, 3.7))),
            float(random.choice(usual) if random.random() < 0.7 else random.uniform(50.0, 99.9)),
        )
        for _ in range(count)
    ]


def test_the_stated_dispersion_is_that_of_the_counts() -> None:
    arrivals = bursty_arrivals(2.0, 0.4, 50.0, 2_000_000, 3)
    counts = np.bincount((arrivals / 50.0).astype(int))[:-1]
    assert counts.var() / counts.mean() == pytest.approx(burstiness_of(0.4, 2000.0, 50.0), rel=0.03)
    assert variation_of(burstiness_of(0.4, 2000.0, 50.0), 2000.0, 50.0) == pytest.approx(0.4)


def test_no_accepted_load_is_refused_by_the_referee() -> None:
    found, asked = [], 0
    for index, (batch, variation, ratio, percentile) in enumerate(questions(scaled(3000, 40), seed=21)):
        rate, timeout_ms = max_rate(batch, 10.0, ratio * 10.0, percentile, variation)
        if rate > 1.0:
            asked += 1
            found.append(refuses(batch, 10.0, rate, timeout_ms, ratio * 10.0, percentile, 2 * index, variation))
    assert [fault for fault in found if fault] == []
    assert asked > 0.5 * scaled(3000, 40)


@pytest.mark.parametrize("variation", [0.01, 0.3, 3.0, 300.0])
def test_a_looser_slo_and_less_variation_never_accept_less(variation: float) -> None:
    ratios = np.concatenate([np.linspace(1.01, 6.0, 500), np.geomspace(6.0, 1e4, 100)])
    for batch in (1, 5, 32, 200):
        for percentile in (50.0, 93.0, 99.9):
            loads = [
                np.array([kernels.accepted_load(limits(percentile, [batch], each).loads[batch], r) for r in ratios])
                for each in (variation, variation / 1.5, 0.0)
            ]
            assert np.all(np.diff(loads[0]) >= 0.0)
            assert np.all(loads[0] <= loads[1] * (1 + 1e-9))
            assert np.all(loads[1] <= loads[2])


@pytest.mark.slow
def test_the_needed_ratio_is_the_inverse_of_the_accepted_load() -> None:
    for batch, variation, ratio, percentile in questions(500, seed=24):
        row = limits(percentile, [batch], variation).loads[batch]
        load = kernels.accepted_load(row, ratio)
        if load > 0.0:
            needed = kernels.needed_ratio(row, load)
            assert needed <= ratio * (1 + 1e-12)
            assert kernels.accepted_load(row, needed * (1 + 1e-12)) >= load * (1 - 1e-9)


def test_the_largest_rate_falls_with_burstiness_and_is_accepted() -> None:
    before = max_rate(8, 10.0, 60.0, 98.0)[0]
    assert max_bursty_rate(8, 10.0, 60.0, 98.0, 1.0) == (before, 0.0)
    for burstiness in (1.5, 2.0, 4.0, 8.0):
        rate, timeout_ms = max_bursty_rate(8, 10.0, 60.0, 98.0, burstiness)
        assert rate < before
        variation = variation_of(burstiness, rate, 60.0)
        assert timeout_for(8, 10.0, 60.0, 98.0, rate * (1 - 1e-5), variation) == timeout_ms == 0.0
        before = rate
    assert max_bursty_rate(8, 10.0, 60.0, 98.0, 50.0) == (0.0, 0.0)
