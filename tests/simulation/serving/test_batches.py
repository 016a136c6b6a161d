"""A simulated batch server keeps the promises that the product's latency function makes for it."""

from __future__ import annotations

import numpy as np
import pytest

from agents.contract.fields import LATENCY_EDGES_MS
from simulation.serving.batches import serve
from solvers.latency import busy_fraction, max_rate

EDGES_S = np.array(LATENCY_EDGES_MS) / 1000
ONE = np.ones(1)
LONGEST = 10**6


def arrivals(rate: float, seconds: float, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.sort(rng.uniform(0.0, seconds, rng.poisson(rate * seconds)))


CASES = [(1, 8.0, 40.0, 98.0), (8, 25.0, 80.0, 98.0), (32, 40.0, 120.0, 95.0)]


@pytest.mark.parametrize(("batch", "exec_ms", "slo_ms", "percentile"), CASES)
def test_at_the_accepted_rate_the_slo_is_kept(batch: int, exec_ms: float, slo_ms: float, percentile: float) -> None:
    rate, timeout_ms = max_rate(batch, exec_ms, slo_ms, percentile)
    queue = arrivals(rate, 400_000 / rate, seed=1)
    counts = np.zeros(len(EDGES_S) + 1, dtype=np.int64)
    until = float(queue[-1]) + 10
    asking = len(queue)
    queued, _, _, _, _, within, failed, *_ = serve(
        queue,
        0,
        batch,
        ONE * exec_ms / 1000,
        timeout_ms / 1000,
        0.0,
        until,
        slo_ms / 1000,
        30.0,
        LONGEST,
        EDGES_S,
        counts,
    )
    assert (queued, failed) == (0, 0)
    assert counts.sum() == asking
    assert within / asking > percentile / 100 - 0.004


def test_ticks_make_no_difference() -> None:
    queue = arrivals(200, 60, seed=2)
    whole = np.zeros(len(EDGES_S) + 1, dtype=np.int64)
    _, _, free, busy, batches, within, *_ = serve(
        queue.copy(), 0, 8, ONE * 0.025, 0.0, 0.0, 61.0, 0.08, 30.0, LONGEST, EDGES_S, whole
    )
    parts = np.zeros_like(whole)
    waiting, then, sums = np.zeros(0), 0.0, np.zeros(3)
    for second in range(61):
        arrived = queue[(queue >= second) & (queue < second + 1)]
        waiting = np.concatenate([waiting, arrived])
        queued, _, then, *counts, _, _, _ = serve(
            waiting, 0, 8, ONE * 0.025, 0.0, max(then, float(second)), second + 1.0, 0.08, 30.0, LONGEST, EDGES_S, parts
        )
        waiting = waiting[:queued].copy()
        sums += counts
    assert (parts == whole).all()
    assert sums == pytest.approx([busy, batches, within])
    assert then == free


def test_it_is_busy_as_the_exact_chain_says() -> None:
    queue = arrivals(160, 2000, seed=3)
    counts = np.zeros(len(EDGES_S) + 1, dtype=np.int64)
    _, _, _, busy, *_ = serve(queue, 0, 8, ONE * 0.025, 0.0, 0.0, 2001.0, 0.08, 30.0, LONGEST, EDGES_S, counts)
    assert busy / 2000 == pytest.approx(busy_fraction(8, 160 * 0.025 / 8), rel=0.01)


def test_who_waits_too_long_is_answered_as_failed() -> None:
    queue = np.linspace(0.0, 1.0, 1000)
    counts = np.zeros(len(EDGES_S) + 1, dtype=np.int64)
    queued, _, _, _, _, _, failed, *_ = serve(
        queue, 0, 1, ONE * 0.1, 0.0, 0.0, 100.0, 0.2, 5.0, LONGEST, EDGES_S, counts
    )
    assert queued == 0
    assert failed == 1000 - counts.sum() > 900


def test_who_finds_the_queue_full_is_turned_away_and_those_who_wait_are_served() -> None:
    queue = np.linspace(0.0, 1.0, 1000)
    counts = np.zeros(len(EDGES_S) + 1, dtype=np.int64)
    queued, inside, free, _, batches, _, failed, turned, _ = serve(
        queue, 0, 1, ONE * 0.1, 0.0, 0.0, 0.95, 0.2, 5.0, 20, EDGES_S, counts
    )
    assert batches == counts.sum() == 10
    assert (failed, queued + turned) == (0, 990)
    assert inside <= 20
    assert queued <= 20 + 100, "who came while the last batch ran is not turned away yet"
    assert free > 0.99


def test_who_waits_already_is_not_turned_away_by_a_lower_limit() -> None:
    queue = np.concatenate([np.linspace(0.0, 0.5, 100), np.linspace(1.0, 1.5, 50)])
    counts = np.zeros(len(EDGES_S) + 1, dtype=np.int64)
    queued, inside, *_, turned, _ = serve(queue, 100, 10, ONE * 0.1, 0.0, 1.0, 1.65, 0.2, 5.0, 5, EDGES_S, counts)
    assert counts.sum() == 70
    assert (queued, inside, turned) == (30, 30, 50)
