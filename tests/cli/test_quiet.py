"""What compiled libraries print does not reach stdout, which is the answer's alone."""

from __future__ import annotations

import os

import pytest

from cli.quiet import quiet_stdout


def test_what_a_library_prints_goes_to_stderr_while_a_command_searches(capfd: pytest.CaptureFixture[str]) -> None:
    with quiet_stdout():
        os.write(1, b"of a library\n")
        if not (child := os.fork()):
            os.write(1, b"of a worker\n")
            os._exit(0)
        os.waitpid(child, 0)
    os.write(1, b"the answer\n")
    out, err = capfd.readouterr()
    assert out == "the answer\n"
    assert err == "of a library\nof a worker\n"


def test_stdout_is_back_after_a_failure(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ValueError, match="search"), quiet_stdout():
        raise ValueError("search")
    os.write(1, b"the answer\n")
    assert capfd.readouterr().out == "the answer\n"


def test_nothing_is_redirected_where_an_output_is_closed(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stderr", None)
    with quiet_stdout():
        os.write(1, b"of a library\n")
    assert capfd.readouterr().out == "of a library\n"
