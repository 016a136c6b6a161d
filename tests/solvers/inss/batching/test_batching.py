"""Batches of the models on one GPU: BDA by its text, and the exact answer against brute force."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from solvers.inss.batching import (
    BatchedModel,
    Batches,
    BatchingProblem,
    BatchOption,
    NoBatches,
    WrongBatching,
    decide_batches,
)
from solvers.inss.batching.bda import bda
from solvers.inss.batching.exact import highest_throughput
from solvers.inss.batching.judge import throughput_per_second, violations
from tests.support.soak import scaled


def rising(slo_ms: float, rate_per_second: float, batches: int = 32, name: str = "a") -> BatchedModel:
    """Latency 5 + batch ms, throughput 1000 batch / (5 + batch), memory 1 + batch / 10 GiB."""
    options = tuple(
        BatchOption(5.0 + batch, 1000 * batch / (5 + batch), 1 + batch / 10) for batch in range(1, batches + 1)
    )
    return BatchedModel(name, slo_ms, rate_per_second, options)


# By hand, and against the printed listing


def test_the_largest_batch_under_the_slo_is_found() -> None:
    decided = bda(BatchingProblem(16.0, (rising(slo_ms=20, rate_per_second=100),)))
    assert decided.batches == {"a": 15}
    assert decided.flag


def test_the_largest_batch_of_all_is_found_if_every_one_is_valid() -> None:
    problem = BatchingProblem(16.0, (rising(slo_ms=100, rate_per_second=100),))
    assert (bda(problem).batches, bda(problem).flag) == ({"a": 32}, True)


def test_the_search_goes_up_if_the_first_batch_tried_is_too_slow() -> None:
    problem = BatchingProblem(16.0, (rising(slo_ms=100, rate_per_second=800),))  # batch 16 serves 762 per second
    assert (bda(problem).batches, bda(problem).flag) == ({"a": 32}, True)


def test_no_batch_is_found_if_none_is_valid() -> None:
    problem = BatchingProblem(16.0, (rising(slo_ms=5, rate_per_second=100),))
    assert (bda(problem).batches, bda(problem).flag) == ({"a": 1}, False)


def test_a_model_without_a_batch_ends_the_search() -> None:
    problem = BatchingProblem(16.0, (rising(5, 100, name="a"), rising(20, 100, name="b")))
    assert bda(problem).found == {"a": False}


def test_memory_is_shared_with_the_current_batches_of_the_others() -> None:
    problem = BatchingProblem(5.0, (rising(100, 100, name="a"), rising(100, 100, name="b")))
    decided = bda(problem)
    assert decided.batches == {"a": 29, "b": 1}  # 3.9 GiB, and 1.1 of batch 1


def test_the_exact_answer_gives_memory_to_the_model_that_gains_most() -> None:
    small, large = rising(100, 100, name="a"), rising(100, 100, name="b")
    answer = decide_batches(BatchingProblem(5.0, (small, large)))
    assert isinstance(answer, Batches)
    assert answer.proof.method == "exact"
    assert sorted(answer.batches.values()) == [15, 15]
    assert answer.proof.gap == 0


# Against each other


@st.composite
def growing_models(draw: st.DrawFn, name: str = "a", most_batches: int = 32) -> BatchedModel:
    """Latency, throughput and memory grow with the batch, as the paper assumes."""
    count = draw(st.integers(1, most_batches))
    columns = [
        sorted(draw(st.lists(st.integers(1, 1000), min_size=count, max_size=count, unique=True))) for _ in range(3)
    ]
    options = tuple(BatchOption(latency, rate, memory / 100) for latency, rate, memory in zip(*columns, strict=True))
    return BatchedModel(name, draw(st.integers(1, 1000)), draw(st.integers(1, 1000)), options)


@st.composite
def problems(draw: st.DrawFn) -> BatchingProblem:
    """Up to three models with up to six batches each, in any order of anything."""
    models = []
    for i in range(draw(st.integers(1, 3))):
        options = draw(
            st.lists(
                st.builds(BatchOption, st.integers(1, 20), st.integers(0, 20), st.integers(1, 20)),
                min_size=1,
                max_size=6,
            )
        )
        models.append(BatchedModel(f"m{i}", draw(st.integers(5, 25)), draw(st.integers(1, 15)), tuple(options)))
    return BatchingProblem(draw(st.integers(1, 50)), tuple(models))


def best_by_trying(problem: BatchingProblem) -> float | None:
    """The highest throughput of all right batches."""
    names = [model.name for model in problem.models]
    ranges = [range(1, len(model.options) + 1) for model in problem.models]
    tried = (dict(zip(names, batches, strict=True)) for batches in product(*ranges))
    right = [throughput_per_second(problem, batches) for batches in tried if not violations(problem, batches)]
    return max(right, default=None)


@settings(max_examples=scaled(3000, 60), deadline=None)
@given(growing_models(), st.floats(0.5, 12.0))
def test_for_one_model_that_grows_with_its_batch_bda_is_exact(model: BatchedModel, memory_gib: float) -> None:
    problem = BatchingProblem(memory_gib, (model,))
    decided, best = bda(problem), best_by_trying(problem)
    assert decided.flag == (best is not None)
    if best is not None:
        assert violations(problem, decided.batches) == []
        assert throughput_per_second(problem, decided.batches) == best


@settings(max_examples=scaled(3000, 60), deadline=None)
@given(problems())
def test_the_answer_serves_as_much_as_the_best_of_all(problem: BatchingProblem) -> None:
    best, answer = best_by_trying(problem), decide_batches(problem)
    if best is None:
        assert isinstance(answer, NoBatches)
        assert "combinations" not in answer.reason
        return
    assert isinstance(answer, Batches)
    assert violations(problem, answer.batches) == []
    assert answer.proof.value == best
    assert answer.proof.bound == best


@settings(max_examples=scaled(3000, 60), deadline=None)
@given(problems(), st.integers(0, 40))
def test_out_of_work_the_bound_still_holds(problem: BatchingProblem, work_limit: int) -> None:
    best, claim = best_by_trying(problem), highest_throughput(problem, work_limit)
    if best is not None:
        assert claim.bound_per_second is not None
        assert claim.bound_per_second >= best
    answer = decide_batches(problem, work_limit)
    if isinstance(answer, Batches):
        assert violations(problem, answer.batches) == []
    else:
        assert best is None or "combinations" in answer.reason


def test_a_model_without_a_valid_batch_is_named_with_its_throughput() -> None:
    answer = decide_batches(BatchingProblem(16.0, (rising(20, 900), rising(100, 100, name="b"))))
    assert isinstance(answer, NoBatches)
    assert answer.reason == "a serves 750 requests per second within its SLO; 900 arrive"


def test_too_little_memory_is_named_with_the_memory_needed() -> None:
    answer = decide_batches(BatchingProblem(2.0, (rising(20, 100), rising(100, 100, name="b"))))
    assert isinstance(answer, NoBatches)
    assert answer.reason == "at least 2.2 GiB are needed; the GPU has 2"


# The judge, and what is refused


@pytest.mark.parametrize(
    ("batches", "says"),
    [
        ({"a": 16}, "a at batch 16 takes 21 ms; its SLO is 20 ms"),
        ({"a": 1}, "a at batch 1 serves 166.667 of 300 requests per second"),
        ({"a": 14}, "2.4 GiB are used; the GPU has 2.3"),
        ({"a": 33}, "a has batch 33; 1..32 are allowed"),
        ({}, "a has batch None; 1..32 are allowed"),
    ],
)
def test_each_rule_broken_alone_is_named(batches: dict[str, int], says: str) -> None:
    memory_gib = 2.3 if batches.get("a") == 14 else 16.0
    assert violations(BatchingProblem(memory_gib, (rising(20, 300),)), batches) == [says]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"options": ()}, "model a has 0 batches; 1..32 are allowed"),
        ({"batch": 33}, "model a: batch 33 is outside 1..32"),
        ({"slo_ms": 0.0}, "model a: sloMs 0 is not a finite number over 0"),
        ({"rate_per_second": float("inf")}, "model a: ratePerSecond inf"),
    ],
)
def test_an_invalid_model_is_refused(changes: dict[str, object], says: str) -> None:
    with pytest.raises(WrongBatching, match=says):
        replace(rising(20, 300), **changes)  # type: ignore[arg-type]


def test_an_invalid_option_and_an_invalid_gpu_are_refused() -> None:
    with pytest.raises(WrongBatching, match="memoryGib -1"):
        BatchOption(1.0, 1.0, -1.0)
    with pytest.raises(WrongBatching, match="model a occurs 2 times"):
        BatchingProblem(1.0, (rising(20, 300), rising(20, 300)))
    with pytest.raises(WrongBatching, match="memoryGib 0 is not"):
        BatchingProblem(0.0, ())
