"""Each iteration takes what the documented scheduler says, and as long as the planner's formula."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.programs.llm.cost import CostError, StubCost, StubLimits, read_file, read_words
from agents.programs.llm.scheduler import Iteration, ScheduledRequest, TokenScheduler
from solvers.llm.iteration import BatchingLimits, IterationCost
from tests.solvers.llm.reference import simulate

COST = StubCost(2.0, 0.02, 8.0, 0.1, 0.001, 0.00001)


def scheduler(sequences: int = 4, tokens: int = 100, kv_tokens: int = 1000) -> TokenScheduler:
    return TokenScheduler(COST, StubLimits(sequences, tokens, kv_tokens), lambda: None)


def run(requests: TokenScheduler, most: int = 10_000) -> float:
    """Computes until nothing is left; returns the milliseconds that all iterations take."""
    now = 0.0
    for _ in range(most):
        iteration = requests.next()
        if iteration is None:
            return now
        assert requests.held <= requests.limits.kv_tokens
        assert len(requests.running) <= requests.limits.sequences
        assert len(iteration.decoding) + sum(part for _, part in iteration.prompts) <= max(
            requests.limits.tokens_per_iteration, len(iteration.decoding)
        )
        now += iteration.milliseconds
        requests.ended(iteration, now)
    raise AssertionError("it does not end")


def following(requests: TokenScheduler) -> Iteration:
    iteration = requests.next()
    assert iteration is not None
    return iteration


@given(st.integers(0, 4000), st.integers(0, 10**6), st.integers(0, 256), st.integers(0, 10**6))
def test_an_iteration_takes_as_long_as_the_planner_says(tokens: int, pairs: int, sequences: int, held: int) -> None:
    mine = COST.milliseconds(tokens, pairs, sequences, held)
    assert mine == pytest.approx(IterationCost(**asdict(COST)).milliseconds(tokens, pairs, sequences, held))


def test_a_request_alone_gets_its_first_token_with_its_prompt_and_one_with_each_iteration_after_it() -> None:
    requests = scheduler()
    request = ScheduledRequest(prompt=50, wanted=3)
    requests.add(request)
    ended = run(requests)
    first = COST.milliseconds(50, 50 * 49 / 2, 0, 0)
    assert request.first_at == pytest.approx(first)
    assert ended == pytest.approx(first + COST.milliseconds(0, 0, 1, 51) + COST.milliseconds(0, 0, 1, 52))
    assert (request.given, requests.held) == (3, 0)


def test_a_long_prompt_takes_several_iterations_and_those_who_decode_go_on_beside_it() -> None:
    requests = scheduler(tokens=100)
    first, long = ScheduledRequest(10, 20), ScheduledRequest(250, 1)
    requests.add(first)
    requests.ended(following(requests), 1.0)
    requests.add(long)
    for part in (99, 99, 52):
        iteration = following(requests)
        assert (iteration.decoding, iteration.prompts) == ((first,), ((long, part),))
        requests.ended(iteration, 2.0)
    assert (first.given, long.given) == (4, 1)


def test_tokens_that_are_there_already_are_not_computed_but_held() -> None:
    requests = scheduler()
    requests.add(ScheduledRequest(80, 2, cached=60))
    iteration = following(requests)
    assert (iteration.prompts[0][1], requests.held) == (20, 81)


def test_no_more_requests_run_than_the_batch_and_the_memory_admit() -> None:
    requests = scheduler(sequences=2)
    for _ in range(3):
        requests.add(ScheduledRequest(10, 5))
    requests.next()
    assert (len(requests.running), len(requests.waiting)) == (2, 1)
    short = scheduler(kv_tokens=100)
    short.add(ScheduledRequest(60, 5))
    short.add(ScheduledRequest(60, 5))
    short.next()
    assert (len(short.running), len(short.waiting)) == (1, 1)


def test_the_last_admitted_gives_up_its_memory_and_is_computed_again_with_its_tokens() -> None:
    preempted = []
    requests = TokenScheduler(COST, StubLimits(4, 100, 60), lambda: preempted.append(True))
    old, new = ScheduledRequest(20, 25), ScheduledRequest(20, 15)
    requests.add(old)
    requests.add(new)
    run(requests)
    assert preempted
    assert (old.given, new.given, requests.held) == (25, 15, 0)


@given(st.lists(st.tuples(st.integers(1, 60), st.integers(1, 40)), max_size=12), st.integers(101, 300))
def test_every_request_gets_all_its_tokens_in_the_memory_that_there_is(
    sizes: list[tuple[int, int]], kv_tokens: int
) -> None:
    requests = scheduler(sequences=3, tokens=32, kv_tokens=kv_tokens)
    all_requests = [ScheduledRequest(prompt, wanted) for prompt, wanted in sizes]
    for request in all_requests:
        requests.add(request)
    run(requests)
    assert [request.given for request in all_requests] == [request.wanted for request in all_requests]
    assert (requests.held, requests.running) == (0, [])


@pytest.mark.slow
@settings(max_examples=60)
@given(
    st.lists(st.tuples(st.integers(1, 60), st.integers(1, 30), st.integers(0, 59)), min_size=1, max_size=10),
    st.integers(91, 250),
    st.integers(1, 5),
    st.integers(6, 64),
)
def test_every_token_comes_when_the_planners_reference_says(
    sizes: list[tuple[int, int, int]], kv_tokens: int, sequences: int, tokens: int
) -> None:
    preempted: list[bool] = []
    limits = StubLimits(sequences, tokens, kv_tokens)
    requests = TokenScheduler(COST, limits, lambda: preempted.append(True))
    sizes = [(prompt, wanted, min(cached, prompt - 1)) for prompt, wanted, cached in sizes]
    mine = [ScheduledRequest(prompt, wanted, cached=cached) for prompt, wanted, cached in sizes]
    for request in mine:
        requests.add(request)
    ended = run(requests)
    whole = BatchingLimits(sequences, tokens, kv_tokens)
    arrivals = [0.0] * len(sizes)
    reference = simulate(IterationCost(**asdict(COST)), whole, arrivals, *zip(*sizes, strict=True))
    assert ended == pytest.approx(reference.end_ms)
    assert len(preempted) == reference.preemptions
    for request, served in zip(mine, reference.requests, strict=True):
        assert (request.first_at, request.last_at) == pytest.approx(
            (served.token_times_ms[0], served.token_times_ms[-1])
        )


def test_a_request_whose_client_left_frees_its_place() -> None:
    requests = scheduler(sequences=1)
    first, second = ScheduledRequest(10, 100), ScheduledRequest(10, 1)
    requests.add(first)
    requests.add(second)
    iteration = following(requests)
    first.gone = True
    assert requests.ended(iteration, 1.0) == []
    assert [request for request, _ in following(requests).prompts] == [second]


def test_coefficients_are_read_from_a_word_and_from_a_profile(tmp_path: Path) -> None:
    assert read_words("baseMs=4,tokenMs=0.02") == StubCost(base_ms=4.0, token_ms=0.02)
    path = tmp_path / "profile.json"
    path.write_text('{"iteration": {"baseMs": {"mean": 4, "q90": 5}, "tokenMs": 0.02}, "model": "m"}')
    assert read_file(path) == StubCost(base_ms=4.0, token_ms=0.02)


@pytest.mark.parametrize("words", ["baseMs", "baseMs=-1", "baseMs=nan", "speed=3", "tokenMs=1e9"])
def test_other_coefficients_are_refused(words: str) -> None:
    with pytest.raises(CostError):
        read_words(words)
