"""The replies of the control program, read strictly."""

from __future__ import annotations

import pytest

from agents.devices.mps import grammar
from agents.seams.device import MpsState

WHOLE = b"7001\n100.0\nACTIVE\n100.0\n8123\n8456\n100.0\n100.0\n"


def test_each_command_is_followed_by_one_whose_reply_is_known() -> None:
    assert grammar.build_script(["get_server_list"]) == "get_server_list\nget_default_active_thread_percentage\n"


def test_a_whole_answer_has_a_reply_to_each_command() -> None:
    assert grammar.split_replies(WHOLE, 4) == (("7001",), ("ACTIVE",), ("8123", "8456"), ())


def test_an_answer_that_is_cut_off_anywhere_is_none() -> None:
    for end in range(len(WHOLE)):
        with pytest.raises(grammar.UnreadableMpsOutput):
            grammar.split_replies(WHOLE[:end], 4)


@pytest.mark.parametrize(
    "printed",
    [
        b"7001\n",
        b"",
        b"7001\n50.0\n",
        b"7001\n100.0\nmore\n",
        b"7001\n100.0\n100.0\n",
        b"\xff\n100.0\n",
        b"7001\n100.0",
    ],
)
def test_an_answer_without_its_mark_or_with_more_than_it_is_none(printed: bytes) -> None:
    with pytest.raises(grammar.UnreadableMpsOutput):
        grammar.split_replies(printed, 1)


def test_pids_may_be_one_a_line_or_many() -> None:
    assert grammar.parse_pids(["8123 8124", "8456"]) == {8123, 8124, 8456}
    assert grammar.parse_pids([]) == frozenset()


@pytest.mark.parametrize("word", ["0", "-1", "08", "1.5", "4194305", "12345678", "x", "8123,", "0x10", "\u0661"])
def test_what_is_no_pid_makes_no_list(word: str) -> None:
    with pytest.raises(grammar.UnreadableMpsOutput):
        grammar.parse_pids(["8123", word])


def test_a_server_that_starts_has_no_clients_yet() -> None:
    words = ("INITIALIZING", "ACTIVE", "FAULT")
    assert [grammar.parse_status([word]) for word in words] == [MpsState.IDLE, MpsState.ACTIVE, MpsState.FAULT]
    for reply in ([], ["active"], ["ACTIVE", "ACTIVE"], ["Invalid server PID"], ["FAULTY"]):
        with pytest.raises(grammar.UnreadableMpsOutput):
            grammar.parse_status(reply)


def test_only_zero_says_that_a_client_was_cut_off() -> None:
    assert grammar.parse_termination(["0"])
    assert not grammar.parse_termination(["1"])
    assert not grammar.parse_termination(["CUDA_ERROR_INVALID_VALUE"])
    for reply in ([], ["0", "0"], ["00"], ["ok"], ["0 0"], ["-1"], ["Invalid server PID"]):
        with pytest.raises(grammar.UnreadableMpsOutput):
            grammar.parse_termination(reply)
