"""What runs beside `gpuwright up` comes back when it dies, and nothing outlives `up`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from agents.runtime import proc
from cli.up.children import Children
from tests.support.patience import until

ENDLESS = ["timeit", "-n", "1", "-r", "1", "import time; print('up', flush=True); time.sleep(600)"]
READING = ["timeit", "-n", "1", "-r", "1", "import sys; print(sys.stdin.read(), flush=True); sys.exit(1)"]
ENDING = ["timeit", "-n", "1", "-r", "1", "import os; os._exit(3)"]


def child(of: Children) -> int:
    return of._running[0].process.pid


def test_a_job_that_may_return_is_started_again_and_reported(tmp_path: Path) -> None:
    said: list[str] = []
    children = Children(said.append, soonest_seconds=0.1)
    log = tmp_path / "planner.log"
    try:
        children.start("the planner", ENDLESS, log, {})
        until(lambda: "up" in log.read_text(), "it is up")
        first = child(children)
        os.kill(first, signal.SIGKILL)
        until(lambda: log.read_text().count("up") == 2, "it is up again")
        assert child(children) != first
        assert said == [f"the planner ended unexpectedly (-9) and starts again in 0.1 s; see {log}"]
    finally:
        children.stop()
    with pytest.raises(ProcessLookupError):
        os.kill(child(children), 0)
    assert len(said) == 1, "an end that was asked for is no death"


@pytest.mark.slow
def test_who_dies_at_once_each_time_is_started_less_and_less_often(tmp_path: Path) -> None:
    said: list[str] = []
    children = Children(said.append, soonest_seconds=0.02)
    try:
        children.start("the planner", ENDING, tmp_path / "planner.log", {})
        until(lambda: len(said) >= 4)
    finally:
        children.stop()
    pauses = [line.partition("again in ")[2].partition(" s;")[0] for line in said[:4]]
    assert pauses == ["0.02", "0.04", "0.08", "0.16"]


def test_who_ends_with_an_error_is_reported_with_its_last_words(tmp_path: Path) -> None:
    said: list[str] = []
    children = Children(said.append, soonest_seconds=0.02)
    log = tmp_path / "part.log"
    try:
        children.start("the real part", READING, log, {}, "HAProxy ended; it says: cannot bind")
        until(lambda: said, "its end was reported")
    finally:
        children.stop()
    assert "and starts again in 0.02 s: " in said[0]
    assert said[0].endswith(f"; see {log}")


def test_what_comes_back_gets_its_input_again(tmp_path: Path) -> None:
    said: list[str] = []
    children = Children(said.append, soonest_seconds=0.02)
    log = tmp_path / "fleet.log"
    try:
        children.start("the fleet", READING, log, {}, "node-1")
        until(lambda: log.read_text().count("node-1") == 2, "it is up again")
    finally:
        children.stop()


STUBBORN = """
import sys; from pathlib import Path; from agents.runtime import proc
from cli.up.children import Children
children = Children(print)
children.start("deaf", ["timeit", "-n", "1", "-r", "1", DEAF], Path(sys.argv[1]), {})
sys.stdin.read()
"""
DEAF = "import os, signal, time; signal.signal(15, signal.SIG_IGN); print(os.getpid(), flush=True); time.sleep(600)"


@pytest.mark.slow
def test_what_does_not_hear_a_signal_ends_with_us_when_we_are_killed(tmp_path: Path) -> None:
    log = tmp_path / "deaf.log"
    words = [sys.executable, "-c", STUBBORN.replace("DEAF", repr(DEAF)), str(log)]
    with subprocess.Popen(words, stdin=subprocess.PIPE) as parent:
        until(lambda: log.exists() and log.read_text().strip().isdecimal(), "its child runs")
        parent.kill()
    until(lambda: not is_running(int(log.read_text())), "the child is gone, too")


def is_running(pid: int) -> bool:
    found = proc.read_process(pid)
    return found is not None and not found.zombie
