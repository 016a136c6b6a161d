"""Rates, timeouts and latencies say the same thing from three sides."""

from __future__ import annotations

import math

import numpy as np
import pytest

from solvers.latency import OutsideTheTable, busy_fraction, kernels, latency_at, limits, max_rate, timeout_for
from tests.solvers.latency.drawn import questions
from tests.solvers.latency.referee import BLOCKS, MANY, refuses, simulate


@pytest.mark.slow
def test_the_largest_rate_is_accepted_under_its_timeout_and_predicted_within_the_slo() -> None:
    for batch, percentile, ratio in questions(1500, seed=21):
        slo_ms = 7.3 * ratio
        rate_per_second, timeout_ms = max_rate(batch, 7.3, slo_ms, percentile)
        if rate_per_second == 0.0:
            continue
        assert timeout_for(batch, 7.3, slo_ms, percentile, rate_per_second) == timeout_ms
        assert timeout_for(batch, 7.3, slo_ms, percentile, rate_per_second * 1.001) is None
        for share in (1.0, 0.7):
            chosen = timeout_for(batch, 7.3, slo_ms, percentile, share * rate_per_second)
            assert chosen is not None
            assert latency_at(batch, 7.3, share * rate_per_second, percentile, chosen) <= slo_ms * (1 + 1e-9)


def test_a_timeout_is_used_only_where_it_pays() -> None:
    assert max_rate(8, 10.0, 30.0, 98.0)[1] == 0.0
    rate_per_second, timeout_ms = max_rate(32, 10.0, 19.79, 98.0)
    assert timeout_ms == pytest.approx(9.79, rel=1e-5)
    prompt = kernels.accepted_load(limits(98.0).prompt[32], 1.979)
    assert rate_per_second * 10.0 / 32 / 1000 > 2 * prompt
    assert timeout_for(32, 10.0, 19.79, 98.0, 0.9 * prompt * 32 / 0.01) == 0.0


@pytest.mark.slow
def test_every_rate_below_the_largest_holds_under_its_timeout() -> None:
    """The accepted loads have no hole: where timeout 0 ends, the timeout has begun."""
    for batch, percentile, slo_ms in ((2, 95.0, 19.0), (8, 98.0, 19.7), (32, 98.0, 19.8), (4, 99.0, 21.0)):
        most, timeout_ms = max_rate(batch, 10.0, slo_ms, percentile)
        assert timeout_ms > 0.0
        for seed, share in enumerate(np.linspace(0.05, 1.0, 12)):
            chosen = timeout_for(batch, 10.0, slo_ms, percentile, share * most)
            assert chosen is not None
            assert refuses(batch, 10.0, share * most, chosen, slo_ms, percentile, seed) == ""
            assert refuses(batch, 10.0, share * most, timeout_ms, slo_ms, percentile, seed) == ""


@pytest.mark.parametrize(("batch", "load"), [(1, 0.4), (2, 0.3), (4, 0.8), (8, 0.05), (64, 0.01), (256, 0.5)])
def test_busy_time_is_that_of_a_simulation(batch: int, load: float) -> None:
    busy = simulate(batch, 1.0, load * batch, 0.0, 2.0, MANY, 3, np.zeros(BLOCKS))
    assert busy_fraction(batch, load) == pytest.approx(busy, abs=2e-3)
    assert busy_fraction(batch, 0.0) == 0.0
    assert busy_fraction(batch, 1.3) == 1.0


def test_a_predicted_latency_is_close_to_the_simulated_one() -> None:
    for batch, load in ((1, 0.6), (8, 0.2), (8, 0.85), (64, 0.9)):
        latency_ms = latency_at(batch, 10.0, load * batch / 0.01, 95.0)
        assert refuses(batch, 10.0, load * batch / 0.01, 0.0, latency_ms, 95.0, 1) == ""
        assert refuses(batch, 10.0, load * batch / 0.01, 0.0, 10.0 + 0.9 * (latency_ms - 10.0), 95.0, 1) != ""


def test_values_outside_the_table_are_refused_by_name() -> None:
    with pytest.raises(OutsideTheTable, match=r"batch 257 is outside 1\.\.256"):
        max_rate(257, 10.0, 30.0, 98.0)
    with pytest.raises(ValueError, match="slo_ms is inf"):
        max_rate(8, 10.0, math.inf, 98.0)
    with pytest.raises(OutsideTheTable, match=r"timeout 11 ms is outside 0\.\.10 ms"):
        latency_at(8, 10.0, 100.0, 98.0, 11.0)
    assert latency_at(8, 10.0, 900.0, 98.0) == math.inf
    assert max_rate(8, 10.0, 9.0, 98.0) == (0.0, 0.0)
    assert timeout_for(8, 10.0, 9.0, 98.0, 1.0) is None
