"""Bursty arrivals: the exact chain against a simulation, and what the product accepts against the chain."""

from __future__ import annotations

import numpy as np
import pytest

from lab.latency import chain, modulated
from solvers.latency import bursts, kernels, limits
from tests.solvers.latency.referee import shares
from tests.solvers.latency.test_bursts import questions
from tests.support.soak import scaled


def weight_of(variation: float) -> float:
    return 1.0 - bursts.rest_of(variation)


@pytest.mark.parametrize(
    ("batch", "load", "variation", "ratio"),
    [(1, 0.5, 0.1, 8.0), (8, 0.6, 1 / 3, 2.5), (8, 0.3, 1.78, 1.6), (4, 0.5, 0.56, 16.0), (32, 0.8, 0.1, 3.0)],
)
def test_the_chain_is_what_a_simulation_finds(batch: int, load: float, variation: float, ratio: float) -> None:
    found = [
        shares(batch, 10.0, 100.0 * load * batch, 0.0, ratio * 10.0, 1_000_000, seed, variation) for seed in (1, 2)
    ]
    late = modulated.late_share(batch, load, weight_of(variation), ratio)
    error = (found[0][1] ** 2 + found[1][1] ** 2) ** 0.5 / 2
    assert 1.0 - late == pytest.approx((found[0][0] + found[1][0]) / 2, abs=4 * error)


def test_elimination_and_iteration_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for operations in (0.0, 1e12):
        monkeypatch.setattr(modulated, "ITERATING", operations)
        found.append([modulated.late_share(batch, 0.6, 0.4, 3.3) for batch in (1, 5, 20)])
    assert found[0] == pytest.approx(found[1], rel=1e-5)


def test_hardly_any_variation_is_poisson() -> None:
    for batch, load, ratio in ((1, 0.8, 3.05), (8, 0.9, 2.4), (32, 0.5, 1.7)):
        plain = 1.0 - chain.attainment(chain.solve(batch, load), np.array([ratio]))[0]
        assert modulated.late_share(batch, load, 1e-6, ratio) == pytest.approx(plain, rel=1e-4)


@pytest.mark.slow
def test_no_accepted_load_is_beyond_the_exact_chain() -> None:
    for batch, variation, ratio, percentile in questions(scaled(3000, 60), seed=22):
        load = kernels.accepted_load(limits(percentile, [batch], variation).loads[batch], ratio)
        if load > 1e-6 and batch * ratio < 500:
            late = modulated.late_share(batch, load, weight_of(variation), ratio)
            assert late <= (1.0 - percentile / 100.0) * (1.0 + 1e-6), (batch, variation, ratio, percentile, load)


def test_hardly_any_load_is_lost() -> None:
    """Of the chain's load at most 3 %, for small batches at usual percentiles and SLOs of two execs or more."""
    kept = []
    for batch, variation, ratio, percentile in questions(scaled(1500, 80), seed=23, least_ratio=2.0):
        if batch > 12 or percentile < 90.0:
            continue
        load = kernels.accepted_load(limits(percentile, [batch], variation).loads[batch], ratio)
        if load < 0.05:
            continue
        beyond, missing = load / 0.97, 1.0 - percentile / 100.0
        is_lost = beyond < 0.9995 and modulated.late_share(batch, beyond, weight_of(variation), ratio) <= missing
        kept.append(not is_lost)
    assert all(kept)
    assert len(kept) >= scaled(1500, 80) / 8
