"""The compiled replay of requests against plain lists of blocks, and what holds for any memory and any ranks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from solvers.llm.iteration import BatchingLimits, EngineForm, IterationCost
from solvers.llm.sweeps.load import ReplayedRequests, replay_requests
from tests.solvers.llm.blocks import replay_blocks

COST = IterationCost(3.0, 0.05, 8.0, 0.03, 6e-3, 2e-4, 1.0)


def draw(seed: int, count: int = 40) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Returns arrivals, inputs, outputs and cached tokens of requests that come faster than they can be answered."""
    generator = np.random.default_rng(seed)
    arrivals = np.cumsum(generator.exponential(12.0, count))
    inputs, outputs = generator.integers(1, 120, count), generator.integers(1, 60, count)
    return arrivals, inputs, outputs, (inputs - 1) * (seed % 3) // 4


def serve(limits: BatchingLimits, form: EngineForm, seed: int) -> ReplayedRequests:
    return replay_requests(COST, replace(limits, form=form), *draw(seed))


@pytest.mark.parametrize("ahead", [False, True])
@pytest.mark.parametrize(("ranks", "experts"), [(1, False), (2, False), (2, True), (3, True)])
def test_every_request_gets_what_lists_of_blocks_give_it(ranks: int, experts: bool, ahead: bool) -> None:
    preemptions = 0
    for seed in range(6):
        generator = np.random.default_rng([seed, ranks])
        limits = BatchingLimits(int(generator.integers(4, 12)), int(generator.integers(40, 200)), 12 * 16 + seed)
        form = EngineForm(int(generator.choice([1, 4, 16])), bool(seed % 2), ranks, experts, ahead)
        told = serve(limits, form, seed)
        expected = replay_blocks(COST, replace(limits, form=form), *(values.tolist() for values in draw(seed)))
        assert told.first_ms == pytest.approx([request.first_ms for request in expected], rel=1e-9)
        assert told.last_ms == pytest.approx([request.last_ms for request in expected], rel=1e-9)
        assert told.preempted.tolist() == [request.preemptions for request in expected]
        assert told.totals[3] <= limits.kv_tokens
        preemptions += int(told.preempted.sum())
    assert preemptions > 20  # else memory was never short


def test_a_memory_that_is_never_full_preempts_nobody_and_more_of_it_changes_nothing() -> None:
    limits = BatchingLimits(8, 128, 8 * 192)
    for seed in range(4):
        told, roomy = (serve(each, EngineForm(), seed) for each in (limits, replace(limits, kv_tokens=10**9)))
        assert told.preempted.sum() == 0
        assert np.array_equal(told.last_ms, roomy.last_ms)


def test_blocks_that_are_found_again_never_cost_time_over_all() -> None:
    limits = BatchingLimits(8, 64, 16 * 16)
    cached, computed = (
        sum(serve(limits, EngineForm(prefix_caching=caching), seed).last_ms.max() for seed in range(8))
        for caching in (True, False)
    )
    assert cached < computed


def test_ranks_that_wait_for_each_other_are_slower_than_ranks_that_do_not() -> None:
    limits = BatchingLimits(4, 128, 512)
    apart, together = (
        sum(serve(limits, EngineForm(data_ranks=2, experts=experts), seed).last_ms.sum() for seed in range(4))
        for experts in (False, True)
    )
    assert apart < together


def test_a_request_that_an_empty_memory_cannot_hold_is_never_served_and_stops_nobody() -> None:
    arrivals, inputs, outputs = np.array([0.0, 1.0]), np.array([60, 10]), np.array([6, 5])
    told = replay_requests(COST, BatchingLimits(4, 128, 64), arrivals, inputs, outputs, 0 * inputs)
    assert (told.first_ms[0], told.last_ms[0]) == (-1.0, -1.0)
    assert told.last_ms[1] > 0


def test_a_form_without_ranks_or_blocks_is_refused() -> None:
    with pytest.raises(ValueError, match="data_ranks 0 is not at least 1"):
        EngineForm(data_ranks=0)
    with pytest.raises(ValueError, match="block_tokens 0 is not at least 1"):
        EngineForm(block_tokens=0)
