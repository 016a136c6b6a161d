"""A job's memory moves to the host and back, and what fails on the way is not called a success."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from agents.runtime import Launch, Running
from agents.runtime.process import ProcessRuntime
from agents.swap import Failed, Swap
from agents.templates import Filled
from tests.support import cuda_checkpoint
from tests.support.caller import until

JOB = "import time; time.sleep(600)"


@dataclass
class Swapped:
    """A job that runs, and the tool that swaps it."""

    runtime: ProcessRuntime
    folder: Path
    running: Running
    swap: Swap

    @property
    def state(self) -> str:
        file = self.folder / str(self.running.pid)
        return file.read_text() if file.exists() else "running"

    def faults(self, *lines: str) -> None:
        (self.folder / "faults").write_text("\n".join(lines))


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Callable[[str], Swapped]]:
    runtime = ProcessRuntime(tmp_path / "copies")
    folder = tmp_path / "tool"
    folder.mkdir()
    program = (sys.executable, cuda_checkpoint.__file__, str(folder))

    def start(code: str) -> Swapped:
        running = runtime.start(Launch("j-1", "", Filled("t", (sys.executable, "-c", code)), 0))
        job = Swapped(runtime, folder, running, Swap(runtime, program, lock_seconds=1.0, move_seconds=1.0))
        job.faults()
        return job

    yield start
    for running in runtime.find():
        runtime.end(running, force=True)
    until(lambda: runtime.find() == ())
    runtime.tidy(())


@pytest.fixture
def job(started: Callable[[str], Swapped]) -> Swapped:
    return started(JOB)


def test_a_job_is_swapped_out_and_back(job: Swapped) -> None:
    job.swap.out(job.running, under_mps=False)
    assert job.state == "checkpointed"
    job.swap.back(job.running)
    assert job.state == "running"
    assert "--action lock --pid" in (job.folder / "calls").read_text()
    assert "--timeout 1000" in (job.folder / "calls").read_text()


@pytest.mark.parametrize("state", ["running", "locked", "checkpointed"])
def test_what_an_earlier_agent_left_half_done_is_done_to_the_end(job: Swapped, state: str) -> None:
    file = job.folder / str(job.running.pid)
    file.write_text(state)
    job.swap.out(job.running, under_mps=False)
    assert job.state == "checkpointed"
    file.write_text(state)
    job.swap.back(job.running)
    assert job.state == "running"


def test_a_job_that_cannot_be_locked_runs_as_before(job: Swapped) -> None:
    job.faults("lock refuses")
    with pytest.raises(Failed, match="cannot be locked: the operation timed out; it runs as before") as failed:
        job.swap.out(job.running, under_mps=False)
    assert not failed.value.bad
    assert job.state == "running"


def test_a_job_that_cannot_be_moved_is_unlocked_again(job: Swapped) -> None:
    job.faults("checkpoint refuses")
    with pytest.raises(Failed) as failed:
        job.swap.out(job.running, under_mps=False)
    assert not failed.value.bad
    assert job.state == "running"


@pytest.mark.parametrize("fault", ["lock breaks", "checkpoint breaks", "checkpoint refuses\nunlock refuses"])
def test_a_process_that_a_failure_leaves_bad_is_said_to_be_bad(job: Swapped, fault: str) -> None:
    job.faults(fault)
    with pytest.raises(Failed, match="must be ended") as failed:
        job.swap.out(job.running, under_mps=False)
    assert failed.value.bad


@pytest.mark.parametrize("fault", ["restore breaks", "restore refuses", "unlock refuses"])
def test_a_job_that_cannot_be_moved_back_must_be_ended(job: Swapped, fault: str) -> None:
    job.swap.out(job.running, under_mps=False)
    job.faults(fault)
    with pytest.raises(Failed) as failed:
        job.swap.back(job.running)
    assert failed.value.bad


def test_a_tool_that_hangs_is_given_up(job: Swapped) -> None:
    job.faults("get-state hangs")
    program = (sys.executable, cuda_checkpoint.__file__, str(job.folder))
    with pytest.raises(Failed, match="is unknown"):
        Swap(job.runtime, program, ask_seconds=0.1).out(job.running, under_mps=False)


@pytest.mark.parametrize("fault", ["get-state lies", "get-state refuses"])
def test_a_state_that_is_none_stops_everything_before_it_begins(job: Swapped, fault: str) -> None:
    job.faults(fault)
    with pytest.raises(Failed, match="is unknown") as failed:
        job.swap.out(job.running, under_mps=False)
    assert not failed.value.bad
    assert job.state == "running"


def test_a_job_under_mps_is_not_touched(job: Swapped) -> None:
    with pytest.raises(Failed, match="under MPS") as failed:
        job.swap.out(job.running, under_mps=True)
    assert not failed.value.bad
    assert not (job.folder / "calls").exists()


def test_a_job_of_several_processes_is_not_touched(started: Callable[[str], Swapped]) -> None:
    job = started("import os, time; os.fork(); time.sleep(600)")
    until(lambda: len(job.runtime.pids(job.running)) == 2)
    with pytest.raises(Failed, match="has 2 processes"):
        job.swap.out(job.running, under_mps=False)
    assert not (job.folder / "calls").exists()


def test_a_process_that_is_gone_is_nobody_to_swap(job: Swapped) -> None:
    job.runtime.end(job.running, force=True)
    until(lambda: not job.runtime.alive(job.running))
    with pytest.raises(Failed, match="does not run"):
        job.swap.back(job.running)
    assert not (job.folder / "calls").exists()


def test_a_machine_without_the_tool_says_so(job: Swapped) -> None:
    with pytest.raises(Failed, match="is unknown"):
        Swap(job.runtime, ("/no/cuda-checkpoint",)).out(job.running, under_mps=False)
