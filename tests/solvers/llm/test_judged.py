"""The judge of an SLO of tokens."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from solvers.llm.iteration import BatchingLimits, IterationCost, TokenLengths, TokenPromise
from solvers.llm.judged import holds
from solvers.llm.streams import stream

COST = IterationCost(5.0, 0.02, weights_ms=8.0, sequence_ms=0.02, kv_token_ms=2e-5)
LIMITS = BatchingLimits(sequences=64, tokens_per_iteration=2048, kv_tokens=200_000)
LENGTHS = TokenLengths(600, 1500, 100, 250)
PROMISE = TokenPromise(500.0, 30.0, 99.0)


def test_a_stream_has_the_lengths_that_were_declared_and_is_cut_at_the_context() -> None:
    requests = stream(replace(LENGTHS, prefix_share=0.25), 200_000, 7)
    assert abs(requests.inputs.mean() / 600 - 1) < 0.01
    assert abs(np.quantile(requests.inputs, 0.95) / 1500 - 1) < 0.01
    assert abs(np.quantile(requests.outputs, 0.95) / 250 - 1) < 0.01
    assert abs(requests.arrivals[-1] / 200_000 - 1) < 0.01
    assert (requests.cached == np.minimum(requests.inputs // 4, requests.inputs - 1)).all()
    cut = stream(replace(LENGTHS, context_tokens=1000), 10_000, 7)
    assert (cut.inputs + cut.outputs).max() == 1000
    assert cut.outputs.min() == 1


def test_a_server_with_room_keeps_its_promise_at_the_first_look() -> None:
    verdict = holds(COST, LIMITS, LENGTHS, PROMISE, 2.0)
    assert verdict.kept
    assert verdict.requests == 100_000
    assert verdict.ttft.share > 0.999
    assert verdict.mean_sequences < 5


@pytest.mark.slow
def test_an_overloaded_server_breaks_its_promise_after_the_second_look() -> None:
    verdict = holds(COST, LIMITS, LENGTHS, PROMISE, 60.0)
    assert not verdict.kept
    assert verdict.requests == 1_000_000
    assert verdict.ttft.share < 0.1
    assert verdict.busy_share > 0.99


@pytest.mark.slow
def test_preemptions_break_a_promise_whose_times_are_kept() -> None:
    patient = TokenPromise(1e9, 1e9, 50.0)
    assert holds(COST, LIMITS, LENGTHS, patient, 15.0).kept
    verdict = holds(COST, replace(LIMITS, kv_tokens=12_000), LENGTHS, patient, 15.0)
    assert not verdict.kept
    assert min(verdict.ttft.share, verdict.tpot.share) > 0.9999
    assert verdict.memory.share < 0.99
    assert verdict.peak_kv_tokens <= 12_000


def test_another_seed_finds_nearly_the_same_shares() -> None:
    promise = replace(PROMISE, tpot_ms=20.0, percentile=50.0)
    first, second = (holds(COST, LIMITS, LENGTHS, promise, 15.0, seed) for seed in (0, 1))
    difference = abs(first.tpot.share - second.tpot.share)
    assert 0 < difference < 5 * max(first.tpot.error, second.tpot.error)
