"""The compiled simulation, against the one token by token."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from solvers.llm.iteration import BatchingLimits, EngineForm, IterationCost, TokenLengths, TokenPromise
from solvers.llm.served import EarlyStop, serve_stream
from solvers.llm.streams import TokenStream, stream
from tests.solvers.llm.drawn import question
from tests.solvers.llm.reference import simulate

Drawn = tuple[IterationCost, BatchingLimits, TokenStream, float]


def drawn(seed: int) -> Drawn:
    """Returns a small server and its requests; some have too little memory for some of them."""
    generator = np.random.default_rng([79, seed])
    used = generator.integers(0, 2, 6)
    coefficients = generator.uniform(0, 1, 6) * np.array([0.05, 5, 0.1, 0.001, 1e-5, 3]) * used
    cost = IterationCost(float(generator.uniform(0.1, 5)), *(float(value) for value in coefficients))
    count = int(generator.integers(1, 45))
    inputs = np.maximum(1, np.rint(generator.lognormal(3.5, 1, count))).astype(np.int64)
    outputs = np.maximum(1, np.rint(generator.lognormal(2.5, 1.2, count))).astype(np.int64)
    cached = np.minimum(inputs - 1, np.floor(inputs * generator.uniform(0, 0.9) * generator.integers(0, 2)))
    limits = BatchingLimits(
        int(generator.integers(1, 20)), int(generator.choice([4, 16, 64, 300])),
        int(generator.choice([300, 600, 1500, 100_000])),
    )  # fmt: skip
    arrivals = np.cumsum(generator.standard_exponential(count))
    rate = 1000.0 / float(generator.choice([1, 20, 200]))
    return cost, limits, TokenStream(arrivals, inputs, outputs, cached.astype(np.int64)), rate


@pytest.mark.slow
def test_both_simulations_agree_on_every_request_of_200_random_servers() -> None:
    preemptions = too_long = 0
    for seed in range(200):
        cost, limits, requests, rate = drawn(seed)
        reference = simulate(
            cost, limits, (requests.arrivals * 1000.0 / rate).tolist(), requests.inputs.tolist(),
            requests.outputs.tolist(), requests.cached.tolist(),
        )  # fmt: skip
        run = serve_stream(cost, limits, requests, rate)
        assert run is not None
        ttft = np.array([request.ttft_ms for request in reference.requests])
        tpot = np.array([request.tpot_ms for request in reference.requests])
        served_ones = ~np.isnan(ttft)
        assert np.isinf(run.ttft_ms[~served_ones]).all()
        np.testing.assert_allclose(run.ttft_ms[served_ones], ttft[served_ones], rtol=1e-9)
        np.testing.assert_allclose(run.tpot_ms[served_ones], tpot[served_ones], rtol=1e-9)
        assert run.preempted.tolist() == [request.preemptions for request in reference.requests]
        assert (run.peak_kv_tokens, run.too_long) == (reference.peak_kv_tokens, reference.too_long)
        assert (run.busy_ms, run.end_ms) == pytest.approx((reference.busy_ms, reference.end_ms), rel=1e-9)
        preemptions += reference.preemptions
        too_long += reference.too_long
    assert preemptions > 30
    assert too_long > 10


@pytest.mark.parametrize("seed", range(4))
def test_an_early_stop_comes_exactly_when_more_requests_fail_than_it_admits(seed: int) -> None:
    cost, limits, lengths, promise = question(seed)
    requests = stream(lengths, 2000, 0)
    rate = 1000.0 / (lengths.output_mean * cost.base_ms / limits.sequences + lengths.input_mean * cost.token_ms)
    run = serve_stream(cost, limits, requests, rate)
    assert run is not None
    late = int((run.ttft_ms[100:] > promise.ttft_ms).sum())
    slow = int((run.tpot_ms[100:] > promise.tpot_ms).sum())
    lost = int(((run.preempted > 0) | np.isinf(run.ttft_ms))[100:].sum())
    for number, most in ((late, "late"), (slow, "slow"), (lost, "lost")):
        admitted = {"late": 1e9, "slow": 1e9, "lost": 1e9}
        assert (
            serve_stream(cost, limits, requests, rate, EarlyStop(promise, 100, **admitted | {most: number})) is not None
        )
        if number:
            assert (
                serve_stream(cost, limits, requests, rate, EarlyStop(promise, 100, **admitted | {most: number - 1}))
                is None
            )


def test_more_requests_than_the_compiled_loop_can_number_are_refused() -> None:
    empty = np.zeros(1 << 21, dtype=np.int8)
    with pytest.raises(ValueError, match="2097152 requests are too many"):
        serve_stream(IterationCost(1.0, 0.1), BatchingLimits(1, 1, 10), TokenStream(empty, empty, empty, empty), 1.0)  # type: ignore[arg-type]


def test_a_promise_counts_only_requests_after_the_first() -> None:
    requests = TokenStream(np.arange(1.0, 5.0), *(np.full(4, value, dtype=np.int64) for value in (10, 2, 0)))
    cost, limits = IterationCost(10.0, 0.0), BatchingLimits(4, 100, 1000)
    never = TokenPromise(1.0, 1.0, 50.0)
    assert serve_stream(cost, limits, requests, 1.0, EarlyStop(never, 4, 0, 0, 0)) is not None
    assert serve_stream(cost, limits, requests, 1.0, EarlyStop(never, 3, 0, 1, 0)) is None


def test_two_ranks_carry_about_twice_what_one_does_and_less_if_they_wait_for_each_other() -> None:
    cost, limits = IterationCost(8.0, 0.05, 12.0, 0.03), BatchingLimits(32, 1024, 40_000)
    requests = stream(TokenLengths(400, 1000, 60, 120), 2000, 0)

    def waited(ranks: int, experts: bool, rate: float) -> float:
        form = EngineForm(data_ranks=ranks, experts=experts)
        run = serve_stream(cost, replace(limits, form=form), requests, rate)
        assert run is not None
        assert run.busy_ms <= run.end_ms
        return float(run.ttft_ms.mean())

    alone, apart, together = waited(1, False, 8.0), waited(2, False, 16.0), waited(2, True, 16.0)
    assert apart < 1.2 * alone  # the emptier rank takes the next request
    assert apart < together
