"""The largest rate of a language model's server, against the judge and against looser promises."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest

from solvers.llm.capacity import LlmCapacity, capacity, find_capacity
from solvers.llm.iteration import BatchingLimits, IterationCost, TokenLengths, TokenPromise
from solvers.llm.judged import holds
from tests.solvers.llm.drawn import TokenQuestion, question
from tests.solvers.llm.planned import planned_question
from tests.support.soak import scaled

pytestmark = pytest.mark.slow

COST = IterationCost(5.0, 0.02, weights_ms=8.0, sequence_ms=0.02, kv_token_ms=2e-5, prompt_pair_ms=1e-7)
LIMITS = BatchingLimits(sequences=128, tokens_per_iteration=2048, kv_tokens=400_000)
LENGTHS = TokenLengths(1155, 3465, 211, 633)
PROMISE = TokenPromise(1000.0, 30.0, 99.0)
SERVERS = list(range(3000, 3000 + scaled(120, 8)))  # of either kind


@pytest.fixture(scope="module")
def found() -> list[tuple[TokenQuestion, LlmCapacity]]:
    asked = [drawn(seed) for seed in SERVERS for drawn in (question, planned_question)]
    return [(server, capacity(*server)) for server in asked]


def test_the_judge_keeps_the_rates(found: list[tuple[TokenQuestion, LlmCapacity]]) -> None:
    served = [(server, answer) for server, answer in found if answer.rate_per_second > 0]
    assert len(served) >= 0.8 * len(found)
    refused = [server for server, answer in served if not holds(*server, answer.rate_per_second).kept]
    assert len(refused) <= 0.01 * len(served), refused


def test_a_ninth_more_breaks_nearly_all_promises(found: list[tuple[TokenQuestion, LlmCapacity]]) -> None:
    served = [(server, answer) for server, answer in found if answer.rate_per_second > 0][: scaled(240, 8)]
    kept = [server for server, answer in served if holds(*server, answer.rate_per_second / 0.9).kept]
    assert len(kept) <= 0.1 * len(served), kept


def test_the_figures_at_the_rate_keep_the_promise(found: list[tuple[TokenQuestion, LlmCapacity]]) -> None:
    for (_, limits, _, promise), answer in found:
        if answer.rate_per_second > 0:
            assert answer.ttft_ms <= promise.ttft_ms
            assert answer.tpot_ms <= promise.tpot_ms
            assert 0 < answer.busy_share <= 1
            assert 0 < answer.mean_sequences <= limits.sequences


@pytest.mark.parametrize("seed", range(3000, 3000 + scaled(60, 3)))
def test_a_looser_promise_more_memory_and_faster_iterations_never_lower_the_rate(seed: int) -> None:
    cost, limits, lengths, promise = question(seed)
    rate = capacity(cost, limits, lengths, promise).rate_per_second
    faster = IterationCost(**{field.name: 0.9 * getattr(cost, field.name) for field in fields(cost)})
    looser = [
        (cost, limits, lengths, replace(promise, ttft_ms=1.1 * promise.ttft_ms)),
        (cost, limits, lengths, replace(promise, tpot_ms=1.1 * promise.tpot_ms)),
        (cost, limits, lengths, replace(promise, percentile=0.95 * promise.percentile)),
        (cost, replace(limits, kv_tokens=int(1.1 * limits.kv_tokens)), lengths, promise),
        (faster, limits, lengths, promise),
    ]
    assert all(capacity(*easier).rate_per_second >= rate for easier in looser)


def test_a_promise_that_a_request_alone_breaks_has_no_rate_but_the_figures_of_such_a_request() -> None:
    answer = capacity(COST, LIMITS, LENGTHS, replace(PROMISE, tpot_ms=5.0))
    assert answer.rate_per_second == 0
    assert 12 < answer.tpot_ms < 20  # base and weights are 13 ms
    assert capacity(COST, replace(LIMITS, kv_tokens=2000), LENGTHS, PROMISE).rate_per_second == 0


def test_the_same_question_has_the_same_answer_and_a_prefix_cache_raises_it() -> None:
    answer = capacity(COST, LIMITS, LENGTHS, PROMISE)
    assert answer == capacity(COST, LIMITS, LENGTHS, PROMISE)
    assert capacity(COST, LIMITS, replace(LENGTHS, prefix_share=0.6), PROMISE).rate_per_second > answer.rate_per_second


def test_a_server_at_half_its_rate_runs_fewer_requests_and_keeps_its_promise_with_room() -> None:
    answer = capacity(COST, LIMITS, LENGTHS, PROMISE)
    half = find_capacity(COST, LIMITS, LENGTHS, PROMISE, answer.rate_per_second / 2)
    assert half.mean_sequences < answer.mean_sequences / 2
    assert half.tpot_ms < answer.tpot_ms


def test_nonsense_is_refused_when_it_is_built() -> None:
    with pytest.raises(ValueError, match="base_ms nan"):
        IterationCost(float("nan"), 0.1)
    with pytest.raises(ValueError, match="kv_tokens 0 is not"):
        BatchingLimits(1, 1, 0)
    with pytest.raises(ValueError, match=r"input_p95 500 is outside 100\.\.386"):
        TokenLengths(100, 500, 10, 20)
    with pytest.raises(ValueError, match=r"prefix_share 1\.0"):
        TokenLengths(100, 200, 10, 20, 1.0)
    with pytest.raises(ValueError, match=r"context_tokens 1 is outside 2\.\.2000000"):
        TokenLengths(100, 200, 10, 20, context_tokens=1)
