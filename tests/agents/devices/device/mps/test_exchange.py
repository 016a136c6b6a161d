"""A program that is run ends by its deadline, no matter how it behaves."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from agents.devices.mps.program import LONGEST_ANSWER_BYTES, Printed, TooLate, detach, run
from tests.support.patience import until

ENVIRONMENT = {"PATH": os.environ["PATH"]}
SOON, LONG = 0.3, 60.0


def shell(script: str, seconds: float, written: bytes = b"") -> Printed:
    return run(["sh", "-c", script], written, ENVIRONMENT, seconds)


def test_input_reaches_the_program_and_its_output_comes_back_with_the_status() -> None:
    assert shell("cat; echo more >&2; exit 3", LONG, b"words\n") == Printed(3, b"words\nmore\n")


def test_a_program_that_does_not_listen_is_no_failure() -> None:
    assert shell("exec <&-; echo done", LONG, b"words\n").output == b"done\n"


@pytest.mark.parametrize(
    "script",
    [
        "sleep 600",
        "echo part; sleep 600",
        "while :; do echo more; sleep 0.05; done",
        "sleep 600 & echo left behind",
        "exec >&- 2>&-; sleep 600",
        "trap '' TERM INT HUP; sleep 600",
    ],
)
def test_a_program_that_does_not_end_is_too_late(script: str) -> None:
    with pytest.raises(TooLate):
        shell(script, SOON)


def test_a_program_that_prints_for_ever_is_not_read_for_ever() -> None:
    with pytest.raises(TooLate):
        shell("yes", LONG)
    assert LONGEST_ANSWER_BYTES < 100_000


def test_what_a_late_program_started_is_ended_with_it(tmp_path: Path) -> None:
    with pytest.raises(TooLate):
        shell(f"sleep 600 & echo $! > {tmp_path}/pid; yes", LONG)
    pid = int((tmp_path / "pid").read_text())

    def gone() -> bool:
        try:
            return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
        except OSError:
            return True

    until(gone, "the child of the program is left")


def test_what_goes_into_the_background_may_keep_its_output_open(tmp_path: Path) -> None:
    script = f"sleep 600 & echo $! > {tmp_path}/pid; echo started; exit 5"
    assert detach(["sh", "-c", script], ENVIRONMENT, tmp_path / "printed", LONG) == 5
    assert (tmp_path / "printed").read_text() == "started\n"
    os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)


def test_what_does_not_go_into_the_background_is_too_late(tmp_path: Path) -> None:
    with pytest.raises(TooLate):
        detach(["sleep", "600"], ENVIRONMENT, tmp_path / "printed", SOON)


def test_a_program_that_is_missing_is_an_error_of_the_system() -> None:
    with pytest.raises(FileNotFoundError):
        run(["/nonexistent/program"], b"", ENVIRONMENT, LONG)
