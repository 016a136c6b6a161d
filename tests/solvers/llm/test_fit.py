"""Coefficients of an iteration are found again from what a server with known ones shows under load."""

from __future__ import annotations

from dataclasses import astuple

import numpy as np
import pytest

from solvers.llm.fit import fit
from solvers.llm.iteration import BatchingLimits, IterationCost
from solvers.llm.sweeps.load import LoadTest, MeasuredLoad, OfferedRequests, ServerModel, TokenTimes

LIMITS = BatchingLimits(64, 1024, 10**9)
SERVER = ServerModel(IterationCost(3.0, 0.05, 8.0, 0.03, 6e-5, 2e-6, 1.0), LIMITS, request_ms=2.0, late_iterations=1)


def closed(input_tokens: int, output_tokens: int, concurrency: int) -> LoadTest:
    return LoadTest(input_tokens, output_tokens, concurrency=concurrency)


def measured(load: LoadTest, server: ServerModel = SERVER) -> MeasuredLoad:
    return MeasuredLoad(load, predicted(load, server))


def predicted(load: LoadTest, server: ServerModel = SERVER) -> TokenTimes:
    return OfferedRequests(load).times(server)


def test_a_fit_predicts_a_shape_that_it_has_not_seen() -> None:
    shapes = [(128, 32), (512, 64), (1024, 16)]
    found = fit([measured(closed(*shape, concurrency)) for shape in shapes for concurrency in (1, 8, 32)], LIMITS)
    unseen = closed(256, 128, 16)
    assert found.model.late_iterations == 1
    assert astuple(predicted(unseen, found.model)) == pytest.approx(astuple(predicted(unseen)), rel=0.03)


def test_a_time_that_was_not_measured_is_left_out_of_the_fit() -> None:
    loads = [measured(closed(256, 32, concurrency)) for concurrency in (1, 4, 16, 32)]
    loads[1] = MeasuredLoad(loads[1].load, TokenTimes(float("nan"), loads[1].times.tpot_ms))
    found = fit(loads, LIMITS, rounds=6)
    assert found.mean_error < 0.05
    assert np.isnan(found.errors[1][0])


def test_no_loads_are_no_fit() -> None:
    with pytest.raises(ValueError, match="no load was measured"):
        fit([], LIMITS)


def test_a_load_has_either_a_rate_or_a_concurrency() -> None:
    with pytest.raises(ValueError, match="a load has one of the two above 0"):
        LoadTest(10, 10)
    with pytest.raises(ValueError, match="seconds 0 of a load at a rate"):
        LoadTest(10, 10, rate_per_second=1.0)


def test_a_closed_loop_keeps_its_concurrency() -> None:
    requests = OfferedRequests(LoadTest(64, 32, concurrency=4, seconds=5.0))
    ttft_ms, rest_ms, _ = requests.answered(SERVER)
    share = (ttft_ms + rest_ms).sum() / 5000.0
    assert share == pytest.approx(4.0, rel=0.1)
