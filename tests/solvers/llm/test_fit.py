"""Coefficients of an iteration are found again from what a server with known ones shows under load."""

from __future__ import annotations

from dataclasses import astuple

import numpy as np
import pytest

from solvers.llm.fit import fit
from solvers.llm.iteration import BatchingLimits, IterationCost
from solvers.llm.sweeps.fit_requests import RequestLog, fit_requests, replayed
from solvers.llm.sweeps.load import LoadTest, MeasuredLoad, OfferedRequests, ServerModel, TokenTimes
from solvers.llm.sweeps.paced import PacedSweep
from tests.solvers.llm.reference import simulate

LIMITS = BatchingLimits(64, 1024, 10**9)
SERVER = ServerModel(IterationCost(3.0, 0.05, 8.0, 0.03, 6e-5, 2e-6, 1.0), LIMITS, request_ms=2.0, late_iterations=1)


def closed(input_tokens: int, output_tokens: int, concurrency: int) -> LoadTest:
    return LoadTest(input_tokens, output_tokens, concurrency=concurrency)


def at_rate(rate: float) -> LoadTest:
    return LoadTest(512, 64, rate_per_second=rate, seconds=20.0, spread=0.5)


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


def test_a_rate_left_out_of_a_sweep_is_found_by_the_pace_of_the_others() -> None:
    slower = ServerModel(IterationCost(*(1.1 * ms for ms in astuple(SERVER.cost))), LIMITS, 2.0, 1)
    kept = [measured(at_rate(rate), slower) for rate in (2.0, 6.0, 10.0)]
    sweep = PacedSweep(SERVER, kept)
    assert sweep.paces == pytest.approx(np.log(1.1), abs=0.01)
    truth = predicted(at_rate(8.0), slower)
    assert astuple(sweep.predict(at_rate(8.0), 8.0)) == pytest.approx(astuple(truth), rel=0.05)


def test_a_closed_loop_keeps_its_concurrency() -> None:
    requests = OfferedRequests(LoadTest(64, 32, concurrency=4, seconds=5.0))
    ttft_ms, rest_ms, _ = requests.answered(SERVER)
    share = (ttft_ms + rest_ms).sum() / 5000.0
    assert share == pytest.approx(4.0, rel=0.1)


def test_a_log_is_replayed_by_coefficients_from_its_first_half() -> None:
    generator = np.random.default_rng(3)
    count = 120
    arrivals = np.cumsum(generator.exponential(40.0, count))
    inputs, outputs = generator.integers(50, 1500, count), generator.integers(50, 300, count)
    empty = np.zeros(count)
    first, last = replayed(RequestLog(arrivals, inputs, outputs, empty, empty), LIMITS, SERVER.cost)
    log = RequestLog(arrivals, inputs, outputs, first, last)
    cost = fit_requests(log, LIMITS, count // 2)
    told_first, told_last = replayed(log, LIMITS, cost)
    half = slice(count // 2, None)
    assert (told_first - arrivals)[half].mean() == pytest.approx((first - arrivals)[half].mean(), rel=0.05)
    assert (told_last - told_first)[half].mean() == pytest.approx((last - first)[half].mean(), rel=0.02)


def test_the_replay_of_a_log_equals_the_reference_token_by_token() -> None:
    generator = np.random.default_rng(5)
    arrivals = np.cumsum(generator.exponential(30.0, 60))
    inputs, outputs = generator.integers(1, 2500, 60), generator.integers(1, 60, 60)
    empty = np.zeros(60)
    limits = BatchingLimits(8, 1024, 10**9)
    first, last = replayed(RequestLog(arrivals, inputs, outputs, empty, empty), limits, SERVER.cost)
    run = simulate(SERVER.cost, limits, arrivals.tolist(), inputs.tolist(), outputs.tolist(), [0] * 60)
    assert first == pytest.approx([request.token_times_ms[0] for request in run.requests], rel=1e-3)
    assert last == pytest.approx([request.token_times_ms[-1] for request in run.requests], rel=1e-3)
