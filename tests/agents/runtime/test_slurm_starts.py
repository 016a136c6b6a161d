"""Starts of Slurm's jobs that are over, or that nobody has confirmed, when they are looked for."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from agents.runtime import Running
from agents.runtime.slurm import SlurmRuntime
from tests.agents.runtime.conformance import launched
from tests.agents.runtime.test_slurm import (
    MPS_SHARE,
    await_code,
    runtime,  # noqa: F401
    slurm,  # noqa: F401
    start_with,
)
from tests.support.patience import until
from tests.support.slurm import Slurm


@pytest.mark.slow
@pytest.mark.parametrize(("program", "code"), [("echo done", 0), ("echo no such model; exit 7", 7)])
def test_a_program_that_ends_at_once_has_run(
    runtime: SlurmRuntime,  # noqa: F811
    slurm: Slurm,  # noqa: F811
    program: str,
    code: int,
) -> None:
    launch = replace(launched("a", program), gpu="GPU-0", limits={MPS_SHARE: "30"})
    runtime.start(launch)
    shown = ("squeue", "--noheader", "--states=all", f"--name={runtime._name_job('a')}", "--format=%T")
    until(lambda: slurm.ask(*shown).strip() in ("COMPLETED", "FAILED"), "it is over", 30)
    started: list[Running] = []

    def has_run() -> bool:
        started.extend(filter(None, [runtime.start(launch)]))
        return bool(started)

    until(has_run, "it has run", 30)
    assert not runtime.alive(started[0]) and runtime.pids(started[0]) == frozenset()
    assert await_code(runtime, started[0]) == code
    assert runtime.log_tail("a")
    runtime.end(started[0], force=True)
    runtime.withdraw("a", started[0])


@pytest.mark.slow
def test_a_job_whose_submission_got_no_answer_is_found_and_not_submitted_again(
    runtime: SlurmRuntime,  # noqa: F811
    slurm: Slurm,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lost = tmp_path / "bin" / "sbatch"
    lost.parent.mkdir()
    message = "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation"
    lost.write_text(f"#!/bin/sh\n{shutil.which('sbatch')} \"$@\" >/dev/null || exit\necho '{message}' >&2\nexit 1\n")
    lost.chmod(0o755)
    with monkeypatch.context() as changed:
        changed.setenv("PATH", f"{lost.parent}:{os.environ['PATH']}")
        launch = start_with(runtime, "a", "GPU-0", "30")
        assert "Socket timed out" in runtime.log_tail("a")
        until(lambda: runtime.start(launch), "its job is found")
    numbers = slurm.ask("squeue", "--noheader", "--states=all", f"--name={runtime._name_job('a')}", "--format=%A")
    assert len(numbers.split()) == 1
    assert runtime.log_tail("a").strip() == "up"


@pytest.mark.slow
def test_how_a_job_has_ended_is_asked_again_where_the_controller_did_not_say(
    runtime: SlurmRuntime,  # noqa: F811
    slurm: Slurm,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    away = tmp_path / "bin" / "scontrol"
    away.parent.mkdir()
    away.write_text("#!/bin/sh\necho 'slurm_load_jobs error: Unable to contact slurm controller' >&2\nexit 1\n")
    away.chmod(0o755)
    launch = replace(launched("a", "exit 7"), gpu="GPU-0", limits={MPS_SHARE: "30"})
    runtime.start(launch)
    shown = ("squeue", "--noheader", "--states=all", f"--name={runtime._name_job('a')}", "--format=%T")
    until(lambda: slurm.ask(*shown).strip() == "FAILED", "it is over", 30)
    with monkeypatch.context() as changed:
        changed.setenv("PATH", f"{away.parent}:{os.environ['PATH']}")
        until(lambda: runtime.start(launch) or "Unable to contact" in runtime.log_tail("a"), "it waits", 30)
    until(lambda: runtime.start(launch), "it has run", 30)
