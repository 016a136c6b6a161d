"""The chain against closed forms, an exact chain by brute force, and a simulation."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import poisson

from lab.latency import chain
from tests.solvers.latency.referee import BLOCKS, MANY, simulate


def test_a_batch_of_one_is_the_queue_of_the_textbook() -> None:
    load = 0.7
    solved = chain.solve(1, load)
    waiting = sum((k + 1) * p for k, p in enumerate(solved.waiting))  # at a start: the request served, and those left
    assert chain.cycle(solved) == pytest.approx(1.0 / load, rel=1e-9)  # busy for the share `load` of the time
    assert waiting - 1.0 == pytest.approx(
        load**2 / (2 * (1 - load)) - (load + np.exp(-load) * (1 - load) * np.exp(load) - 1), abs=1e-6
    )


@pytest.mark.parametrize(("batch", "load"), [(1, 0.5), (2, 0.9), (5, 0.3), (8, 0.9)])
def test_the_number_waiting_has_the_stationary_state_of_the_chain(batch: int, load: float) -> None:
    size = 400
    arrivals = poisson.pmf(np.arange(size), load * batch)
    state = np.zeros(size)
    state[0] = 1.0
    for _ in range(2500):
        waiting = np.convolve(state, arrivals)[:size]
        state = np.concatenate([[waiting[: batch + 1].sum()], waiting[batch + 1 :], np.zeros(batch)])
    assert chain.solve(batch, load).waiting[:size] == pytest.approx(state, abs=1e-10)


def test_a_load_of_one_or_more_has_no_stationary_state() -> None:
    for load in (0.0, 1.0, 1.2, float("nan")):
        with pytest.raises(ValueError, match="has no stationary state"):
            chain.solve(4, load)


@pytest.mark.parametrize(
    ("batch", "load", "ratio", "timeout"),
    [(1, 0.8, 3.05, 0.0), (4, 0.5, 2.53, 0.75), (8, 0.92, 1.43, 0.43), (64, 0.94, 2.55, 0.0), (200, 0.77, 1.91, 0.0),
     (2, 0.6, 1.9, 0.9), (16, 0.05, 1.8, 0.8), (8, 0.83, 2.78, 1.0)],
)  # fmt: skip
def test_attainment_and_busy_time_are_those_of_a_simulation(
    batch: int, load: float, ratio: float, timeout: float
) -> None:
    solved = chain.solve(batch, load)
    blocks = np.zeros(BLOCKS)
    slack = 1e-9  # of a timeout that leaves exactly the SLO, rounding would make some late
    busy = simulate(batch, 1.0, load * batch, timeout * (1 - slack), ratio, MANY, 1, blocks)
    error = blocks.std(ddof=1) / BLOCKS**0.5
    assert chain.attainment(solved, np.array([ratio]), timeout)[0] == pytest.approx(blocks.mean(), abs=5 * error)
    assert 1.0 / chain.cycle(solved, timeout) == pytest.approx(busy, abs=2e-3)


@pytest.mark.slow
def test_attainment_falls_with_load_and_rises_with_ratio_and_timeout() -> None:
    ratios = np.linspace(1.0, 6.0, 161)
    for batch in (1, 2, 7, 32, 256):
        before = np.ones(len(ratios))
        for load in (0.01, 0.1, 0.4, 0.7, 0.9, 0.97):
            solved = chain.solve(batch, load)
            now = chain.attainment(solved, ratios)
            assert np.all(np.diff(now) >= -1e-12)
            assert np.all(now <= before + 1e-12)
            assert np.all(np.diff([chain.cycle(solved, timeout) for timeout in (0.0, 0.3, 0.9, 1.0)]) >= -1e-12)
            before = now
