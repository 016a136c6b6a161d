"""Coefficients of an iteration are found again from a server's log, and its pace from a sweep of rates."""

from __future__ import annotations

from dataclasses import astuple, replace

import numpy as np
import pytest

from lab.language.fit_requests import RequestLog, fit_requests, replay_log
from lab.language.paced import PacedSweep
from solvers.llm.iteration import BatchingLimits, EngineForm, IterationCost
from solvers.llm.sweeps.load import LoadTest, ReplayedRequests, ServerModel
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


@pytest.mark.slow
@pytest.mark.parametrize(
    ("form", "kv_tokens"),
    [
        (EngineForm(), 10**9),
        (EngineForm(schedules_ahead=True), 12_000),
        (EngineForm(data_ranks=2), 10**9),
        (EngineForm(data_ranks=2, experts=True), 10**9),
        (EngineForm(data_ranks=4), 12_000),
        (EngineForm(data_ranks=4, experts=True, schedules_ahead=True), 4_000),
    ],
)
def test_an_engine_is_recovered_from_the_first_half_of_its_log(form: EngineForm, kv_tokens: int) -> None:
    generator = np.random.default_rng(3)
    count, half = 300, slice(150, None)
    arrivals = np.cumsum(generator.exponential(40.0 / form.data_ranks, count))
    inputs, outputs = generator.integers(50, 1500, count), generator.integers(50, 300, count)
    limits = replace(LIMITS, kv_tokens=kv_tokens, form=form)
    empty = np.zeros(count)
    truth = replay_log(RequestLog(arrivals, inputs, outputs, empty, empty), limits, SERVER.cost)
    assert (truth.preempted.sum() > 0) == (kv_tokens < 10**9)
    log = RequestLog(arrivals, inputs, outputs, truth.first_ms, truth.last_ms, truth.ranks)
    found = replay_log(log, limits, fit_requests(log, limits, 150))
    for told, real in zip(_figures(found, log, half), _figures(truth, log, half), strict=True):
        assert told == pytest.approx(real, rel=0.03)


def _figures(times: ReplayedRequests, log: RequestLog, part: slice) -> tuple[float, float, float]:
    """Returns mean TTFT, mean TPOT and the 95th percentile of latency."""
    latency = (times.last_ms - log.arrivals_ms)[part]
    tpot = ((times.last_ms - times.first_ms) / (log.outputs - 1))[part]
    return (times.first_ms - log.arrivals_ms)[part].mean(), tpot.mean(), np.quantile(latency, 0.95)


def test_the_replay_of_a_log_equals_the_reference_token_by_token() -> None:
    generator = np.random.default_rng(5)
    arrivals = np.cumsum(generator.exponential(30.0, 60))
    inputs, outputs = generator.integers(1, 2500, 60), generator.integers(1, 60, 60)
    empty = np.zeros(60)
    limits = BatchingLimits(8, 1024, 10**9)
    found = replay_log(RequestLog(arrivals, inputs, outputs, empty, empty), limits, SERVER.cost)
    run = simulate(SERVER.cost, limits, arrivals.tolist(), inputs.tolist(), outputs.tolist(), [0] * 60)
    assert found.first_ms == pytest.approx([request.token_times_ms[0] for request in run.requests], rel=1e-3)
    assert found.last_ms == pytest.approx([request.token_times_ms[-1] for request in run.requests], rel=1e-3)
