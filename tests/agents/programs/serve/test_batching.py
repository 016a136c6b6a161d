"""A batch starts when it is full or its oldest request has waited long enough; it takes all waiting ones that fit."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from agents.programs.serve.batching import QueuedRequest, RequestQueue


def queue(batch: int, timeout: float, *came: float) -> RequestQueue:
    waiting = RequestQueue(batch, timeout)
    for moment in came:
        waiting.add(QueuedRequest(b"", moment))
    return waiting


def test_an_empty_queue_starts_nothing() -> None:
    assert queue(4, 1.0).starts_at(5.0) is None


def test_without_a_timeout_it_starts_at_once() -> None:
    assert queue(4, 0.0, 5.0).starts_at(5.0) == 5.0


def test_it_waits_for_the_oldest_to_have_waited_the_timeout() -> None:
    assert queue(4, 1.0, 5.0, 5.9).starts_at(5.9) == 6.0


def test_a_full_batch_waits_for_nothing() -> None:
    assert queue(2, 1.0, 5.0, 5.1).starts_at(5.1) == 5.1


def test_a_timeout_that_has_passed_means_now() -> None:
    assert queue(4, 1.0, 5.0).starts_at(9.0) == 9.0


def test_it_takes_the_oldest_first_up_to_the_batch() -> None:
    waiting = queue(2, 0.0, 1.0, 2.0, 3.0)
    assert [pending.came for pending in waiting.take()] == [1.0, 2.0]
    assert [pending.came for pending in waiting.take()] == [3.0]
    assert waiting.take() == []


def test_who_gave_up_takes_no_place_and_makes_no_batch_full() -> None:
    waiting = queue(2, 1.0)
    first, second, third = (QueuedRequest(b"", came) for came in (1.0, 2.0, 3.0))
    waiting.add(first)
    waiting.add(second)
    assert waiting.give_up(first)
    assert not waiting.give_up(first)
    assert len(waiting) == 1
    assert waiting.starts_at(2.0) == 3.0  # the oldest that still waits came at 2
    waiting.add(third)
    assert waiting.take() == [second, third]
    assert not waiting.give_up(second)


@given(
    st.integers(1, 5),
    st.lists(st.one_of(st.just("come"), st.just("take"), st.integers(0, 30).map(str)), max_size=200),
)
def test_no_request_is_lost_doubled_or_overtaken(batch: int, acts: list[str]) -> None:
    waiting = RequestQueue(batch, 1.0)
    everyone: list[QueuedRequest] = []
    expected: list[QueuedRequest] = []
    taken: list[QueuedRequest] = []
    for act in acts:
        if act == "come":
            pending = QueuedRequest(b"", float(len(everyone)))
            everyone.append(pending)
            expected.append(pending)
            waiting.add(pending)
        elif act == "take":
            got = waiting.take()
            assert got == expected[:batch]
            del expected[: len(got)]
            taken += got
        elif int(act) < len(everyone):
            pending = everyone[int(act)]
            assert waiting.give_up(pending) == (pending in expected)
            if pending in expected:
                expected.remove(pending)
        assert len(waiting) == len(expected)
        assert (waiting.starts_at(0.0) is None) == (not expected)
    assert len(set(map(id, taken))) == len(taken)
