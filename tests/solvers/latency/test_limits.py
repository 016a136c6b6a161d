"""Limits against the referee's simulation and against themselves; the lab compares them with the exact chain."""

from __future__ import annotations

import math

import numpy as np
import pytest

from solvers.latency import OutsideTheTable, kernels, limits, max_rate
from tests.solvers.latency.drawn import questions
from tests.solvers.latency.referee import refuses
from tests.support.soak import scaled


@pytest.mark.slow
def test_no_accepted_load_is_refused_by_the_referee() -> None:
    random = np.random.default_rng(11)
    found = []
    for index, (batch, percentile, ratio) in enumerate(questions(scaled(10_000, 50), seed=11)):
        exec_ms = float(np.exp(random.uniform(np.log(0.5), np.log(500.0))))
        rate_per_second, timeout_ms = max_rate(batch, exec_ms, ratio * exec_ms, percentile)
        if rate_per_second > 0.0:
            found.append(refuses(batch, exec_ms, rate_per_second, timeout_ms, ratio * exec_ms, percentile, 2 * index))
    assert [fault for fault in found if fault] == []
    assert len(found) > 0.9 * scaled(10_000, 50)


@pytest.mark.parametrize("percentile", [50.0, 73.123456, 98.0, 99.9])
@pytest.mark.parametrize("batch", [1, 2, 3, 8, 100, 256])
def test_a_looser_slo_never_accepts_less_load(percentile: float, batch: int) -> None:
    ratios = np.concatenate([np.linspace(0.5, 4.0, 3501), np.geomspace(4.0, 1e6, 500)])
    for rows in (limits(percentile).prompt, limits(percentile).loads):
        loads = np.array([kernels.accepted_load(rows[batch], ratio) for ratio in ratios])
        assert np.all(np.diff(loads) >= 0.0)
        assert np.all(loads[ratios <= 1.0] == 0.0)
        assert loads[-1] < 1.0


def test_a_higher_percentile_never_accepts_more_load() -> None:
    ratios = (1.5, 1.9, 1.99, 2.0, 2.3, 5.0, 40.0)
    for batch in (1, 4, 31, 256):
        loads = [
            [kernels.accepted_load(limits(percentile).prompt[batch], ratio) for ratio in ratios]
            for percentile in (50.0, 90.0, 90.01, 95.0, 99.0, 99.89, 99.9)
        ]
        assert np.all(np.diff(loads, axis=0) <= 0.0)
        assert loads[1][1] > loads[2][1] > 0.0  # a hundredth of a percent counts


@pytest.mark.slow
def test_the_needed_ratio_is_the_inverse_of_the_accepted_load() -> None:
    for batch, percentile, ratio in questions(2000, seed=14):
        row = limits(percentile).loads[batch]
        load = kernels.accepted_load(row, ratio)
        if load > 0.0:
            needed = kernels.needed_ratio(row, load)
            assert needed <= ratio * (1 + 1e-12)
            assert kernels.accepted_load(row, needed * (1 + 1e-12)) >= load * (1 - 1e-9)


def test_the_cliff_is_where_two_execs_fit() -> None:
    row = limits(98.0).loads[32]
    assert kernels.accepted_load(row, 1.95) == pytest.approx(0.0204, abs=0.0005)
    assert kernels.accepted_load(row, 2.0) == pytest.approx(0.815, abs=0.005)
    assert kernels.accepted_load(row, 2.25) == pytest.approx(0.907, abs=0.005)


def test_batch_0_accepts_nothing_and_values_outside_the_table_are_refused() -> None:
    assert kernels.accepted_load(limits(98.0).loads[0], 10.0) == 0.0
    for ratio in (float("nan"), -1.0, 0.0, 1.0):
        assert kernels.accepted_load(limits(98.0).loads[8], ratio) == 0.0
    assert kernels.accepted_load(limits(98.0).loads[8], math.inf) == kernels.accepted_load(limits(98.0).loads[8], 1e6)
    for percentile in (49.9, 99.91, float("nan")):
        with pytest.raises(OutsideTheTable, match=r"is outside 50\.\.99\.9"):
            limits(percentile)
