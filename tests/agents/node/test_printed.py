"""What an instance has printed is read process after process, and nothing that another instance has printed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from agents.contract.logs import MOST_LOG_BYTES, LogWanted
from agents.node.printed import read_printed
from agents.runtime.logs import Logs
from agents.runtime.process import ProcessRuntime

COPIES = ("shop-1.1.1", "shop-1.1.2", "shop-1.1.3")  # of one instance, one after the other
OTHER = "bank-1.1.1"


def runtime(folder: Path, printed: Mapping[str, str]) -> ProcessRuntime:
    """A runtime whose copies have printed this."""
    found = ProcessRuntime(folder / "copies", cgroups=False)
    logs = Logs(folder / "copies" / "logs", 1 << 20)
    for copy, text in printed.items():
        logs.path(copy).write_text(text)
    return found


def read(found: ProcessRuntime, begins: str, copies: tuple[str, ...] = COPIES) -> tuple[str, str]:
    answer = read_printed(LogWanted("q", "shop-1", begins), copies, found)
    assert answer.id == "q"
    return answer.text, answer.ends


@pytest.mark.parametrize("begins", [f"{OTHER}@0", f"{OTHER}@3", "@0", f"{COPIES[0]}x@0", f"../logs/{OTHER}@0", "x"])
def test_a_place_in_the_output_of_another_instance_reads_the_instances_own(tmp_path: Path, begins: str) -> None:
    found = runtime(tmp_path, {COPIES[0]: "ours\n", OTHER: "a secret of theirs\n"})
    assert read(found, begins) == ("ours\n", f"{COPIES[0]}@5")
    assert read(found, begins, ()) == ("", ""), "an instance without processes has printed nothing"


@pytest.mark.parametrize("offset", ["", "-1", "+1", "1.0", "0x1", "1e1", "one"])
def test_a_place_without_a_number_is_none(tmp_path: Path, offset: str) -> None:
    found = runtime(tmp_path, {COPIES[0]: "one\ntwo\n", COPIES[2]: "three\n"})
    assert read(found, f"{COPIES[0]}@{offset}") == ("one\ntwo\nthree\n", f"{COPIES[2]}@6"), "the last lines of all"


def test_a_place_is_read_on_from_to_the_processes_after_it(tmp_path: Path) -> None:
    found = runtime(tmp_path, {COPIES[0]: "one\ntwo\n", COPIES[2]: "three\n", OTHER: "theirs\n"})
    assert read(found, f"{COPIES[0]}@0") == ("one\ntwo\n", f"{COPIES[0]}@8")
    assert read(found, f"{COPIES[0]}@4") == ("two\n", f"{COPIES[0]}@8")
    assert read(found, f"{COPIES[0]}@8") == ("three\n", f"{COPIES[2]}@6"), "the second has printed nothing"
    assert read(found, f"{COPIES[2]}@6") == ("", f"{COPIES[2]}@6"), "nothing more: the place stays"
    assert read(found, f"{COPIES[1]}@0") == ("three\n", f"{COPIES[2]}@6"), "never back to an earlier one"


def test_what_nothing_was_printed_of_begins_with_the_last_process(tmp_path: Path) -> None:
    assert read(runtime(tmp_path, {}), "") == ("", f"{COPIES[2]}@0")
    assert read(runtime(tmp_path, {OTHER: "theirs\n"}), "", ()) == ("", "")


def test_the_last_lines_of_all_processes_have_a_limit_together_and_no_control_sequences(tmp_path: Path) -> None:
    line = "\x1b[2J" + "x" * 59 + "\n"
    many = line * (MOST_LOG_BYTES // len(line))
    found = runtime(tmp_path, {COPIES[0]: "long ago\n", COPIES[1]: many, COPIES[2]: "last\n"})
    text, ends = read(found, "")
    assert ends == f"{COPIES[2]}@5"
    assert text.endswith("x\nlast\n")
    assert "\x1b" not in text and "long ago" not in text
    assert MOST_LOG_BYTES - 2 * len(line) < len(text) + text.count("[") <= MOST_LOG_BYTES
    text, ends = read(found, f"{COPIES[1]}@0")
    assert "\x1b" not in text and ends == f"{COPIES[1]}@{len(many)}"
