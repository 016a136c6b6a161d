"""The token-by-token simulation, against what its scheduler prescribes, worked out by hand."""

from __future__ import annotations

import pytest

from solvers.llm.iteration import BatchingLimits, IterationCost
from tests.solvers.llm.reference import ReferenceRun, simulate

STEP = IterationCost(base_ms=10.0, token_ms=0.0)  # every iteration takes 10 ms
ROOMY = BatchingLimits(sequences=8, tokens_per_iteration=100, kv_tokens=10_000)


def run(
    requests: list[tuple[float, int, int]],
    limits: BatchingLimits = ROOMY,
    cost: IterationCost = STEP,
    cached: int = 0,
) -> ReferenceRun:
    arrivals, inputs, outputs = zip(*requests, strict=True)
    return simulate(cost, limits, arrivals, inputs, outputs, [cached] * len(requests))


def test_a_request_alone_takes_an_iteration_for_its_prompt_and_each_later_token() -> None:
    (request,) = run([(5.0, 50, 4)]).requests
    assert request.token_times_ms == [15.0, 25.0, 35.0, 45.0]
    assert (request.ttft_ms, request.tpot_ms) == (10.0, 10.0)


def test_a_request_that_arrives_during_an_iteration_waits_for_its_end() -> None:
    _, second = run([(0.0, 50, 4), (12.0, 50, 1)]).requests
    assert second.token_times_ms == [30.0]  # the iteration from 10 to 20 has begun
    assert second.tpot_ms != second.tpot_ms  # a request of one token has none


def test_a_long_prompt_takes_several_iterations_beside_tokens_of_answers() -> None:
    first, second = run([(0.0, 10, 5), (1.0, 250, 1)]).requests
    assert first.token_times_ms == [10.0, 20.0, 30.0, 40.0, 50.0]
    assert second.token_times_ms == [40.0]  # 99, 99 and 52 tokens, in the iterations from 10, 20 and 30


def test_prompts_share_an_iteration_in_order_of_arrival() -> None:
    first, second, third = run([(0.0, 60, 1), (0.0, 60, 1), (0.0, 60, 1)]).requests
    assert [first.ttft_ms, second.ttft_ms, third.ttft_ms] == [10.0, 20.0, 20.0]


def test_a_full_batch_makes_the_next_request_wait() -> None:
    limits = BatchingLimits(sequences=1, tokens_per_iteration=100, kv_tokens=10_000)
    _, second = run([(0.0, 10, 3), (0.0, 10, 1)], limits).requests
    assert second.ttft_ms == 40.0


def test_a_prompt_that_does_not_fit_into_memory_waits_and_nothing_overtakes_it() -> None:
    limits = BatchingLimits(sequences=8, tokens_per_iteration=100, kv_tokens=100)
    _, second, third = run([(0.0, 60, 3), (0.0, 60, 1), (0.0, 5, 1)], limits).requests
    assert second.ttft_ms == third.ttft_ms == 40.0


def test_the_request_admitted_last_is_preempted_and_computed_again_with_what_it_gave() -> None:
    limits = BatchingLimits(sequences=8, tokens_per_iteration=100, kv_tokens=24)
    first, second = run([(0.0, 10, 6), (0.0, 10, 6)], limits).requests
    assert first.token_times_ms == [10.0, 20.0, 30.0, 40.0, 50.0, 60.0]
    assert second.token_times_ms == [10.0, 20.0, 70.0, 80.0, 90.0, 100.0]  # 12 tokens held by each are the most
    assert (first.preemptions, second.preemptions) == (0, 1)


def test_a_request_that_does_not_fit_into_memory_alone_is_not_served() -> None:
    limits = BatchingLimits(sequences=8, tokens_per_iteration=100, kv_tokens=24)
    found = run([(0.0, 10, 15), (0.0, 10, 5)], limits)
    assert found.too_long == 1
    assert [len(request.token_times_ms) for request in found.requests] == [0, 5]


def test_an_iteration_costs_what_its_coefficients_say() -> None:
    cost = IterationCost(1.0, 0.1, weights_ms=2.0, sequence_ms=0.5, kv_token_ms=0.01, prompt_pair_ms=0.001)
    (request,) = run([(0.0, 40, 2)], cost=cost).requests
    prompt = 1.0 + 0.1 * 40 + 0.001 * (40 * 39 / 2)
    assert request.token_times_ms == pytest.approx([prompt, prompt + 1.0 + 2.0 + 0.5 + 0.01 * 41])


def test_tokens_of_a_cached_prefix_are_held_but_not_computed() -> None:
    cost = IterationCost(1.0, 0.1, prompt_pair_ms=0.001)
    found = run([(0.0, 40, 1)], cost=cost, cached=30)
    pairs = sum(range(30, 40))
    assert found.requests[0].ttft_ms == pytest.approx(1.0 + 0.1 * 10 + 0.001 * pairs)
    assert found.peak_kv_tokens == 41
