"""Coefficients of an iteration are found again from a server's log, and its pace from a sweep of rates."""

from __future__ import annotations

from dataclasses import astuple

import numpy as np
import pytest

from lab.language.fit_requests import RequestLog, fit_requests, replayed
from lab.language.paced import PacedSweep
from solvers.llm.iteration import BatchingLimits, IterationCost
from solvers.llm.sweeps.load import LoadTest, ServerModel
from tests.solvers.llm.reference import simulate
from tests.solvers.llm.test_fit import LIMITS, SERVER, measured, predicted


def make_load_test(rate: float) -> LoadTest:
    return LoadTest(512, 64, rate_per_second=rate, seconds=20.0, spread=0.5)


def test_a_rate_left_out_of_a_sweep_is_found_by_the_pace_of_the_others() -> None:
    slower = ServerModel(IterationCost(*(1.1 * ms for ms in astuple(SERVER.cost))), LIMITS, 2.0, 1)
    kept = [measured(make_load_test(rate), slower) for rate in (2.0, 6.0, 10.0)]
    sweep = PacedSweep(SERVER, kept)
    assert sweep.paces == pytest.approx(np.log(1.1), abs=0.01)
    truth = predicted(make_load_test(8.0), slower)
    assert astuple(sweep.predict(make_load_test(8.0), 8.0)) == pytest.approx(astuple(truth), rel=0.05)


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
