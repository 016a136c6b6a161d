"""What runs beside `gpuwright up`: the planner comes back when it dies, and nothing outlives `up`."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from cli.children import Children
from tests.support.patience import until

ENDLESS = ["timeit", "-n", "1", "-r", "1", "import time; print('up', flush=True); time.sleep(600)"]
ENDING = ["timeit", "-n", "1", "-r", "1", "import os; os._exit(3)"]


def child(of: Children) -> int:
    return of._running[0].process.pid


def test_a_job_that_may_return_is_started_again_and_reported(tmp_path: Path) -> None:
    said: list[str] = []
    children = Children(said.append, soonest_seconds=0.1)
    log = tmp_path / "planner.log"
    try:
        children.start("the planner", ENDLESS, log, {}, comes_back=True)
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
        children.start("the planner", ENDING, tmp_path / "planner.log", {}, comes_back=True)
        until(lambda: len(said) >= 4)
    finally:
        children.stop()
    pauses = [line.partition("again in ")[2].partition(" s;")[0] for line in said[:4]]
    assert pauses == ["0.02", "0.04", "0.08", "0.16"]


def test_another_that_dies_is_named_and_stays_down(tmp_path: Path) -> None:
    said: list[str] = []
    children = Children(said.append)
    try:
        children.start("the fleet", ENDING, tmp_path / "fleet.log", {})
        until(lambda: bool(said))
    finally:
        children.stop()
    assert said == [f"the fleet ended unexpectedly (3); see {tmp_path / 'fleet.log'}"]
