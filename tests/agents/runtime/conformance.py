"""What every runtime promises, whatever it starts copies with. A runtime's tests inherit it."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from agents.runtime import Launch, LaunchError, Running, Runtime
from agents.templates import Filled
from tests.support.caller import until

SLEEPER = "import time; print('up', flush=True); time.sleep(600)"
STUBBORN = "import signal, time; signal.signal(15, signal.SIG_IGN); print('up', flush=True); time.sleep(600)"
FAMILY = (
    "import os, signal, sys, time; signal.signal(15, signal.SIG_IGN)\n"
    "for _ in range(3): os.fork()\n"
    "print('up', flush=True); time.sleep(600)"
)


def launched(copy: str, program: str, python: str, **changes: object) -> Launch:
    filled = Filled("test", (python, "-c", program), {"GREETING": "hello"})
    return replace(Launch(copy, "", filled, 8000), **changes)  # type: ignore[arg-type]


class RuntimeConformance:
    """Subclasses give `runtime`, `again` (a second runtime on the same copies) and `python`."""

    @pytest.fixture
    def runtime(self, tmp_path: Path) -> Iterator[Runtime]:
        raise NotImplementedError

    @pytest.fixture
    def python(self) -> str:
        raise NotImplementedError

    def again(self, tmp_path: Path) -> Runtime:
        raise NotImplementedError

    def up(self, runtime: Runtime, copy: str, program: str, python: str) -> Running:
        running = runtime.start(launched(copy, program, python))
        until(lambda: "up" in runtime.log_tail(copy), f"{copy} prints")
        return running

    def test_a_started_copy_is_alive_and_its_process_is_the_one_named(self, runtime: Runtime, python: str) -> None:
        running = self.up(runtime, "a-1", SLEEPER, python)
        assert runtime.alive(running)
        assert running.pid in runtime.pids(running)

    def test_a_copy_that_is_asked_to_end_ends_and_is_found_no_more(self, runtime: Runtime, python: str) -> None:
        running = self.up(runtime, "a-1", SLEEPER, python)
        runtime.end(running, force=False)
        until(lambda: not runtime.alive(running), "SIGTERM ends it")
        assert runtime.find() == ()
        runtime.end(running, force=False)
        runtime.end(running, force=True)

    def test_a_copy_that_ignores_the_request_is_made_to_end(self, runtime: Runtime, python: str) -> None:
        running = self.up(runtime, "a-1", STUBBORN, python)
        runtime.end(running, force=False)
        assert runtime.alive(running)
        runtime.end(running, force=True)
        until(lambda: not runtime.alive(running), "SIGKILL ends it")

    def test_all_processes_of_a_copy_are_known_and_ended_together(self, runtime: Runtime, python: str) -> None:
        running = runtime.start(launched("a-1", FAMILY, python))
        until(lambda: len(runtime.pids(running)) == 8, "three forks make eight")
        family = runtime.pids(running)
        runtime.end(running, force=True)
        until(lambda: not any(map(running_now, family)), "all eight are gone")
        assert runtime.pids(running) == frozenset()

    def test_another_agent_finds_each_copy_once(self, runtime: Runtime, python: str, tmp_path: Path) -> None:
        first = self.up(runtime, "a-1", SLEEPER, python)
        second = runtime.start(launched("b/2", FAMILY, python))
        until(lambda: len(runtime.pids(second)) == 8)
        other = self.again(tmp_path)
        assert sorted(other.find(), key=lambda running: running.copy) == [first, second]
        assert other.alive(first)
        assert other.pids(second) == runtime.pids(second)
        other.end(first, force=True)
        until(lambda: not runtime.alive(first), "the other ended it")

    def test_a_process_that_got_the_pid_later_is_never_signalled(self, runtime: Runtime, python: str) -> None:
        running = self.up(runtime, "a-1", SLEEPER, python)
        other = replace(running, copy="long-gone", start_ticks=running.start_ticks - 1, container="")
        for stale in (other, replace(running, copy="long-gone", boot_id="another boot", container="")):
            assert not runtime.alive(stale)
            assert runtime.pids(stale) == frozenset()
            runtime.end(stale, force=False)
            runtime.end(stale, force=True)
            runtime.tell(stale, "SIGKILL")
        assert runtime.alive(running)

    def test_a_copy_has_its_template_environment_and_its_limits_and_nothing_else(
        self, runtime: Runtime, python: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("AGENT_SECRET", "canary")
        program = "import os; print(sorted(os.environ.items()), 'up', flush=True)"
        limits = {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "30", "GREETING": "limited"}
        runtime.start(launched("a-1", program, python, limits=limits, gpu="GPU-7"))
        until(lambda: "up" in runtime.log_tail("a-1"))
        said = runtime.log_tail("a-1")
        assert "'30'" in said
        assert "('GREETING', 'limited')" in said
        assert "('GPUWRIGHT_COPY', 'a-1')" in said
        assert "GPU-7" in said
        assert "canary" not in said

    def test_a_signal_of_its_own_reaches_the_copy(self, runtime: Runtime, python: str) -> None:
        program = (
            "import signal, time\n"
            "signal.signal(10, lambda *_: print('told', flush=True)); print('up', flush=True)\n"
            "while True: time.sleep(0.05)"
        )
        running = self.up(runtime, "a-1", program, python)
        runtime.tell(running, "SIGUSR1")
        until(lambda: "told" in runtime.log_tail("a-1"))
        assert runtime.alive(running)

    def test_what_a_copy_said_before_it_died_can_still_be_read(self, runtime: Runtime, python: str) -> None:
        program = "import sys; print('out'); print('\\x1b[31mred', file=sys.stderr); raise SystemExit('no such model')"
        running = runtime.start(launched("a-1", program, python))
        until(lambda: not runtime.alive(running))
        until(lambda: "no such model" in runtime.log_tail("a-1"))
        assert "[31mred" in runtime.log_tail("a-1")
        assert "\x1b" not in runtime.log_tail("a-1")

    def test_a_program_that_is_not_there_is_a_launch_error_that_names_it(self, runtime: Runtime, python: str) -> None:
        with pytest.raises(LaunchError, match="no-such-program"):
            runtime.start(launched("a-1", SLEEPER, "/no-such-program"))
        assert runtime.find() == ()

    def test_logs_of_copies_that_nobody_asks_for_are_deleted(self, runtime: Runtime, python: str) -> None:
        self.up(runtime, "a-1", SLEEPER, python)
        runtime.tidy({"a-1"})
        assert "up" in runtime.log_tail("a-1")


def running_now(pid: int) -> bool:
    """Not even as a zombie of somebody who does not wait: those count as gone."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    text = Path(f"/proc/{pid}/stat").read_text()
    return text[text.rfind(")") + 2] not in "ZX"


def killed(running: Running) -> None:
    os.kill(running.pid, signal.SIGKILL)
