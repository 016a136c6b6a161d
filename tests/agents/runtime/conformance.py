"""The promises of every runtime, no matter how it starts copies. A runtime's tests inherit it."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agents.runtime import CopyRuntime, Launch, LaunchError, Running
from agents.templates import Filled
from tests.support.patience import until

SLEEPER = "echo up; exec sleep 600"
STUBBORN = "trap '' TERM; echo up; sleep 600"
FAMILY = "trap '' TERM; for n in 1 2 3; do sleep 600 & done; echo up; wait"


def launched(copy: str, program: str, **changes: Any) -> Launch:
    """A copy that runs a line of shell; `changes` are of the launch, `image` is the container's."""
    image = changes.pop("image", "")
    filled = Filled("test", ("/bin/sh", "-c", program), {"GREETING": "hello"}, image)
    return replace(Launch(copy, "", filled, 8000), **changes)


class RuntimeConformance:
    """Subclasses give `runtime`, `again` (a second runtime on the same copies) and, for containers, `image`."""

    image = ""

    @pytest.fixture
    def runtime(self, tmp_path: Path) -> Iterator[CopyRuntime]:
        raise NotImplementedError

    def reopened(self, tmp_path: Path) -> CopyRuntime:
        raise NotImplementedError

    def start(self, runtime: CopyRuntime, copy: str, program: str, **changes: Any) -> Running:
        return self.begin(runtime, launched(copy, program, image=self.image, **changes))

    def begin(self, runtime: CopyRuntime, launch: Launch) -> Running:
        """Starts a copy, and waits until its process is there."""
        started: list[Running] = []

        def runs() -> bool:
            running = runtime.start(launch)
            started.extend([running] if running else [])
            return bool(started)

        until(runs, f"{launch.copy} starts")
        return started[0]

    def up(self, runtime: CopyRuntime, copy: str, program: str) -> Running:
        running = self.start(runtime, copy, program)
        until(lambda: "up" in runtime.log_tail(copy), f"{copy} prints")
        return running

    def test_a_started_copy_is_alive_and_its_process_is_the_one_named(self, runtime: CopyRuntime) -> None:
        running = self.up(runtime, "a-1", SLEEPER)
        assert runtime.alive(running)
        assert running.pid in runtime.pids(running)

    def test_a_copy_that_is_asked_to_end_ends_and_is_found_no_more(self, runtime: CopyRuntime) -> None:
        running = self.up(runtime, "a-1", SLEEPER)
        runtime.end(running, force=False)
        until(lambda: not runtime.alive(running), "SIGTERM ends it")
        assert runtime.find() == ()
        runtime.end(running, force=False)
        runtime.end(running, force=True)

    def test_a_copy_that_ignores_the_request_is_made_to_end(self, runtime: CopyRuntime) -> None:
        running = self.up(runtime, "a-1", STUBBORN)
        runtime.end(running, force=False)
        assert runtime.alive(running)
        runtime.end(running, force=True)
        until(lambda: not runtime.alive(running), "SIGKILL ends it")

    def test_all_processes_of_a_copy_are_known_and_ended_together(self, runtime: CopyRuntime) -> None:
        running = self.start(runtime, "a-1", FAMILY)
        until(lambda: len(runtime.pids(running)) >= 4, "a shell and its three children")
        family = runtime.pids(running)
        runtime.end(running, force=True)
        until(lambda: not any(map(running_now, family)), "all are gone")
        assert runtime.pids(running) == frozenset()

    def test_another_agent_finds_each_copy_once(self, runtime: CopyRuntime, tmp_path: Path) -> None:
        first = self.up(runtime, "a-1", SLEEPER)
        second = self.start(runtime, "b/2", FAMILY)
        until(lambda: len(runtime.pids(second)) >= 4)
        other = self.reopened(tmp_path)
        assert sorted(other.find(), key=lambda running: running.copy) == [first, second]
        assert other.alive(first)
        assert other.pids(second) == runtime.pids(second)
        other.end(first, force=True)
        until(lambda: not runtime.alive(first), "the other ended it")

    def test_case_16_a_process_that_got_the_pid_later_is_never_signalled(self, runtime: CopyRuntime) -> None:
        running = self.up(runtime, "a-1", SLEEPER)
        other = replace(running, copy="long-gone", start_ticks=running.start_ticks - 1, container="")
        for stale in (other, replace(running, copy="long-gone", boot_id="another boot", container="")):
            assert not runtime.alive(stale)
            assert runtime.pids(stale) == frozenset()
            runtime.end(stale, force=False)
            runtime.end(stale, force=True)
            runtime.tell(stale, "SIGKILL")
        assert runtime.alive(running)

    def test_a_copy_has_its_template_environment_and_its_limits_and_nothing_else(
        self, runtime: CopyRuntime, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("AGENT_SECRET", "canary")
        limits = {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "30", "GREETING": "$(HOME)"}
        self.start(runtime, "a-1", "env; echo up; exec sleep 600", limits=limits)
        until(lambda: "up" in runtime.log_tail("a-1"))
        printed = runtime.log_tail("a-1").splitlines()
        assert {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=30", "GREETING=$(HOME)", "GPUWRIGHT_COPY=a-1"} <= set(printed)
        assert "AGENT_SECRET=canary" not in printed

    def test_its_own_signal_reaches_the_copy(self, runtime: CopyRuntime) -> None:
        program = "trap 'echo told' USR1; echo up; while :; do sleep 0.05; done"
        running = self.up(runtime, "a-1", program)
        runtime.tell(running, "SIGUSR1")
        until(lambda: "told" in runtime.log_tail("a-1"))
        assert runtime.alive(running)

    def test_a_copy_that_stops_itself_when_asked_is_stopped_until_it_is_told_to_go_on(
        self, runtime: CopyRuntime
    ) -> None:
        program = "trap 'kill -STOP $$; echo on' TSTP; echo up; while :; do sleep 0.05; done"
        running = self.up(runtime, "a-1", program)
        assert not runtime.stopped(running)
        runtime.tell(running, "SIGTSTP")
        until(lambda: runtime.stopped(running), "it has stopped itself")
        assert runtime.alive(running)
        assert not runtime.stopped(replace(running, copy="long-gone", start_ticks=running.start_ticks - 1))
        runtime.tell(running, "SIGCONT")
        until(lambda: not runtime.stopped(running) and "on" in runtime.log_tail("a-1"), "it goes on")
        runtime.tell(running, "SIGTSTP")
        until(lambda: runtime.stopped(running), "it has stopped itself again")
        runtime.end(running, force=True)
        until(lambda: not runtime.alive(running), "a stopped one can be killed")

    def test_the_output_of_a_dead_copy_can_still_be_read(self, runtime: CopyRuntime) -> None:
        program = "echo out; printf '\\033[31mred\\n' >&2; echo no such model >&2; exit 1"
        try:
            running = self.start(runtime, "a-1", program)
        except LaunchError as error:  # where it ended before the runtime saw it run
            assert "no such model" in str(error)
        else:
            until(lambda: not runtime.alive(running))
        until(lambda: "no such model" in runtime.log_tail("a-1"))
        assert "[31mred" in runtime.log_tail("a-1")
        assert "\x1b" not in runtime.log_tail("a-1")

    def test_a_program_that_is_not_there_is_named(self, runtime: CopyRuntime) -> None:
        launch = launched("a-1", "", image=self.image)
        try:
            running = self.begin(runtime, replace(launch, filled=replace(launch.filled, argv=("/no-such-program",))))
        except LaunchError as error:
            assert "no-such-program" in str(error)
        else:  # where an init of the container's starts it
            until(lambda: not runtime.alive(running))
            until(lambda: "no-such-program" in runtime.log_tail("a-1"), "its log has arrived")
        until(lambda: runtime.find() == (), "the Engine, too, has seen its end")

    def test_unneeded_logs_of_copies_are_deleted(self, runtime: CopyRuntime) -> None:
        running = self.up(runtime, "a-1", SLEEPER)
        runtime.end(running, force=True)
        until(lambda: not runtime.alive(running))
        runtime.tidy({"a-1"})
        assert "up" in runtime.log_tail("a-1")
        until(lambda: forgotten(runtime, "a-1"), "the Engine, too, has seen its end")

    def test_a_job_goes_before_a_service_when_the_host_runs_out_of_memory(self, runtime: CopyRuntime) -> None:
        service = self.start(runtime, "s-1", SLEEPER)
        launch = launched("j-1", SLEEPER, image=self.image)
        job = self.begin(runtime, replace(launch, filled=replace(launch.filled, checkpoint_signal="SIGUSR1")))
        scores = [int(Path(f"/proc/{running.pid}/oom_score_adj").read_text()) for running in (service, job)]
        assert scores == [0, 500]


def forgotten(runtime: CopyRuntime, copy: str) -> bool:
    runtime.tidy(())
    return runtime.log_tail(copy) == ""


def running_now(pid: int) -> bool:
    """Zombies whose parent does not wait count as gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):  # the latter if it ends while it is read
        return False
    return text[text.rfind(")") + 2] not in "ZX"


def killed(running: Running) -> None:
    os.kill(running.pid, signal.SIGKILL)
