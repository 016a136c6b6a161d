"""Answers that wait for their readers: the reader that leaves most unread makes room."""

from __future__ import annotations

from contextlib import ExitStack

from app.http.unsent import MOST_ANSWERS, UnsentAnswers


def cuts(unsent: UnsentAnswers, *answers: tuple[str, int]) -> list[int]:
    """Returns the numbers of the answers that were cut, in order, when all of them wait at once."""
    cut: list[int] = []
    with ExitStack() as stack:
        for number, (holder, size) in enumerate(answers):
            stack.enter_context(unsent.hold(holder, [bytes(size)], lambda number=number: cut.append(number)))  # type: ignore[misc]
            assert unsent.used <= unsent.total or number == 0
    assert unsent.used == 0
    return cut


def test_within_the_limits_none_is_cut() -> None:
    assert cuts(UnsentAnswers(100, 50), ("a", 50), ("b", 30), ("b", 20)) == []


def test_over_its_share_a_caller_loses_its_oldest_answers() -> None:
    assert cuts(UnsentAnswers(100, 50), ("a", 20), ("a", 20), ("b", 1), ("a", 40)) == [0, 1]


def test_a_single_answer_over_the_share_is_sent() -> None:
    assert cuts(UnsentAnswers(100, 50), ("a", 120)) == []


def test_over_the_total_who_holds_most_makes_room_and_not_who_comes_last() -> None:
    many = [(f"thief{number}", 45) for number in range(2)]
    assert cuts(UnsentAnswers(100, 50), *many, ("honest", 20), ("honest", 1)) == [0]


def test_what_was_sent_counts_no_more() -> None:
    unsent = UnsentAnswers(100, 50)
    for _ in range(10):
        body = bytes(40)
        with unsent.hold("a", [body], lambda: None) as note_sent:
            assert (unsent.used, unsent.held("a")) == (40, 40)
            note_sent(body, 30)
            assert (unsent.used, unsent.held("a")) == (10, 10)
            note_sent(body, 30)
            assert (unsent.used, unsent.held("a")) == (0, 0)
    assert (unsent.used, unsent.held("a")) == (0, 0)


def test_a_body_that_many_are_sent_counts_once_until_the_last_has_it() -> None:
    unsent, body, cut = UnsentAnswers(100, 50), bytes(40), []
    with ExitStack() as stack:
        told = [
            stack.enter_context(unsent.hold(f"gateway-{number}", [body], lambda number=number: cut.append(number)))  # type: ignore[misc]
            for number in range(50)
        ]
        assert unsent.used == 40 and unsent.held("gateway-7") == 40
        for note_sent in told[1:]:
            note_sent(body, 40)
        assert unsent.used == 40
        told[0](body, 25)
        assert unsent.used == 15
    assert unsent.used == 0 and not cut


def test_who_shares_a_body_with_many_is_not_cut_for_one_who_holds_its_own() -> None:
    unsent, body, cut = UnsentAnswers(100, 80), bytes(60), []
    with ExitStack() as stack:
        for number in range(10):
            stack.enter_context(unsent.hold(f"gateway-{number}", [body], lambda number=number: cut.append(number)))  # type: ignore[misc]
        for size in (20, 30):
            stack.enter_context(unsent.hold("thief", [bytes(size)], lambda: cut.append("thief")))
        assert cut == ["thief"] and unsent.used == 90
    assert unsent.used == 0


def test_a_caller_with_too_many_answers_of_one_body_loses_its_oldest_and_others_lose_none() -> None:
    unsent, body, cut = UnsentAnswers(100, 50), bytes(40), []
    with ExitStack() as stack:
        stack.enter_context(unsent.hold("honest", [body], lambda: cut.append("honest")))
        for number in range(MOST_ANSWERS + 2):
            stack.enter_context(unsent.hold("thief", [body], lambda number=number: cut.append(str(number))))  # type: ignore[misc]
    assert cut == ["0", "1"]
