"""Copies as processes of this machine: with cgroups, and without."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from agents.runtime import CopyRuntime, Launch, LaunchError, proc
from agents.runtime.process import ProcessRuntime
from agents.templates import Filled
from tests.agents.runtime.conformance import SLEEPER, RuntimeConformance, killed, launched, running_now
from tests.support.figures import descriptors
from tests.support.needs import skip_unless_ci
from tests.support.patience import until
from tests.support.soak import scaled


def scripted(copy: str, program: str) -> Launch:
    """A copy that runs a Python program."""
    return Launch(copy, "", Filled("test", (sys.executable, "-c", program)), 8000)


def ended(runtime: CopyRuntime) -> None:
    for running in runtime.find():
        runtime.end(running, force=True)
    until(lambda: runtime.find() == (), "everything is ended")
    runtime.tidy(())


@pytest.fixture(params=[True, False], ids=["cgroups", "marks"])
def cgroups(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture
def runtime(tmp_path: Path, cgroups: bool) -> Iterator[ProcessRuntime]:
    runtime = ProcessRuntime(tmp_path / "copies", cgroups, largest_log_bytes=10_000)
    yield runtime
    ended(runtime)


class TestConformance(RuntimeConformance):
    @pytest.fixture
    def runtime(self, tmp_path: Path, cgroups: bool) -> Iterator[CopyRuntime]:
        runtime = ProcessRuntime(tmp_path / "copies", cgroups)
        yield runtime
        ended(runtime)

    def reopened(self, tmp_path: Path) -> CopyRuntime:
        return ProcessRuntime(tmp_path / "copies", cgroups=False)


@pytest.mark.slow
def test_a_copy_outlives_the_agent_that_started_it_and_keeps_printing(tmp_path: Path) -> None:
    ticker = "while :; do echo tick; sleep 0.02; done"
    agent = (
        "import os, sys; from pathlib import Path; from agents.runtime.process import ProcessRuntime\n"
        "from tests.agents.runtime.conformance import launched\n"
        f"ProcessRuntime(Path({str(tmp_path)!r})).start(launched('a-1', {ticker!r}))\n"
        "os.kill(os.getpid(), 9)"
    )
    assert subprocess.run([sys.executable, "-c", agent], cwd=Path.cwd()).returncode == -signal.SIGKILL
    runtime = ProcessRuntime(tmp_path)
    (running,) = runtime.find()
    assert running.copy == "a-1"
    (tmp_path / "logs" / "a-1.log").write_text("")
    until(lambda: "tick" in runtime.log_tail("a-1"), "it still prints")
    ended(runtime)


@pytest.mark.slow
@pytest.mark.parametrize(
    "hiding",
    [
        # As setproctitle does to the memory that /proc/PID/environ shows.
        "import ctypes; n = open('/proc/self/stat').read().rsplit(')')[1].split(); a, b = int(n[47]), int(n[48])\n"
        "ctypes.memset(a, 0, b - a); assert set(open('/proc/self/environ', 'rb').read()) == {0}",
        "import os; n = os.open('/dev/null', 1); os.dup2(n, 1); os.dup2(n, 2)",
        "import os; os.setsid() if os.fork() == 0 else os._exit(0)",
    ],
)
def test_a_copy_that_hides_one_of_its_marks_is_still_found(
    runtime: ProcessRuntime, hiding: str, tmp_path: Path
) -> None:
    ready = tmp_path / "ready"
    program = f"{hiding}\nimport pathlib, time; pathlib.Path({str(ready)!r}).touch(); time.sleep(600)"
    running = runtime.start(scripted("a-1", program))
    until(ready.exists)
    (found,) = ProcessRuntime(tmp_path / "copies", cgroups=False).find()
    assert found.copy == "a-1"
    runtime.end(running, force=True)
    until(lambda: not running_now(found.pid), "also what left its session")


@pytest.mark.slow
def test_what_is_left_of_a_copy_whose_first_process_died_is_found_and_ended(runtime: ProcessRuntime) -> None:
    family = "import os, time; os.fork(); os.fork(); print('up', flush=True); time.sleep(600)"
    running = runtime.start(scripted("a-1", family))
    until(lambda: len(runtime.pids(running)) == 4)
    killed(running)
    until(lambda: not runtime.alive(running))
    assert len(runtime.pids(running)) == 3
    (left,) = runtime.find()
    assert left.copy == "a-1"
    runtime.end(running, force=True)
    until(lambda: runtime.find() == ())


def test_a_child_that_died_is_reaped_and_no_zombie_stays(runtime: ProcessRuntime) -> None:
    running = runtime.start(scripted("a-1", "pass"))
    until(lambda: not runtime.alive(running))
    until(lambda: proc.read_process(running.pid) is None, "its entry in the process table is gone")


def test_waiting_for_a_foreign_child_is_not_disturbed(runtime: ProcessRuntime) -> None:
    other = subprocess.Popen([sys.executable, "-c", "raise SystemExit(7)"])
    running = runtime.start(scripted("a-1", "pass"))
    until(lambda: not runtime.alive(running))
    runtime.tidy(())
    assert other.wait() == 7


def test_a_log_that_grows_too_long_is_cut_under_the_copy_and_keeps_its_end(
    runtime: ProcessRuntime, tmp_path: Path
) -> None:
    program = (
        "import time\nfor n in range(3000): print('line', n, flush=True)\n"
        "print('up', flush=True)\nwhile True: print('more', flush=True); time.sleep(0.02)"
    )
    runtime.start(scripted("a-1", program))
    until(lambda: "more" in runtime.log_tail("a-1"))
    log = tmp_path / "copies" / "logs" / "a-1.log"
    assert log.stat().st_size > 10_000
    runtime.tidy({"a-1"})
    assert log.stat().st_size < 10_000
    assert log.with_name("a-1.log.1").stat().st_size == 5_000
    assert "line 2999" in runtime.log_tail("a-1")
    until(lambda: log.stat().st_size > 0, "it goes on at the new end")
    assert log.stat().st_mode & 0o777 == 0o600
    runtime.tidy(())
    assert not log.exists()


def test_a_copy_starts_with_a_clean_slate(runtime: ProcessRuntime) -> None:
    program = (
        "import os, signal\nstatus = open('/proc/self/status').read()\n"
        "for line in status.splitlines():\n"
        "    if line.startswith(('NoNewPrivs', 'SigBlk', 'Umask')): print(line.split())\n"
        "print(os.getcwd(), os.getsid(0) == os.getpid(), sorted(os.listdir('/proc/self/fd'))[:4])\n"
        "print('score', open('/proc/self/oom_score_adj').read())\n"
        "print('stdin', os.readlink('/proc/self/fd/0'), 'up', flush=True)"
    )
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    try:
        runtime.start(scripted("a-1", program))
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    until(lambda: "up" in runtime.log_tail("a-1"))
    printed = runtime.log_tail("a-1")
    assert "['NoNewPrivs:', '1']" in printed
    assert "['SigBlk:', '0000000000000000']" in printed
    assert "['Umask:', '0077']" in printed
    assert "/ True ['0', '1', '2', '3']" in printed  # 3 is the listing itself
    assert "score 0" in printed
    assert "stdin /dev/null" in printed


def test_a_template_cannot_lift_its_limits(runtime: ProcessRuntime) -> None:
    filled = Filled("t", ("/bin/sh", "-c", SLEEPER), {"CUDA_VISIBLE_DEVICES": "0,1", "GPUWRIGHT_COPY": "b"})
    running = runtime.start(Launch("a-1", "GPU-7", filled, 0))
    until(lambda: bool(proc.read_variable(running.pid, "CUDA_VISIBLE_DEVICES")), "empty while it becomes its program")
    assert proc.read_variable(running.pid, "CUDA_VISIBLE_DEVICES") == "GPU-7"
    assert proc.read_variable(running.pid, "GPUWRIGHT_COPY") == "a-1"


def test_two_agents_with_two_folders_do_not_see_each_others_copies(runtime: ProcessRuntime, tmp_path: Path) -> None:
    runtime.start(launched("a-1", SLEEPER))
    assert ProcessRuntime(tmp_path / "other").find() == ()


@pytest.mark.slow
def test_an_empty_cgroup_is_removed(tmp_path: Path) -> None:
    runtime = ProcessRuntime(tmp_path)
    first, second = (runtime.start(launched(name, SLEEPER)) for name in ("a-1", "a-2"))
    groups = [runtime._cgroups.of(running.pid, running.copy) for running in (first, second)]
    if groups[0] is None or groups[1] is None:
        ended(runtime)
        skip_unless_ci("this user may make no cgroup here")
    runtime.end(first, force=True)
    until(lambda: not runtime.alive(first) and groups[0] is not None and not groups[0].exists())
    assert groups[1].is_dir()
    ended(runtime)
    assert not groups[1].parent.exists()


@pytest.mark.parametrize("copy", ["..", "../../etc/passwd", "cgroup.procs", "x" * 100])
def test_no_name_of_a_copy_leads_out_of_the_folder(runtime: ProcessRuntime, tmp_path: Path, copy: str) -> None:
    running = runtime.start(launched(copy, SLEEPER))
    assert [found.copy for found in runtime.find()] == [copy]
    assert len(list((tmp_path / "copies" / "logs").iterdir())) == 1
    runtime.end(running, force=True)
    until(lambda: not runtime.alive(running))


@pytest.mark.parametrize("argv", [(), ("",), ("/etc/passwd",), (sys.executable, "a\0b"), ("x" * 300,)])
def test_what_cannot_be_run_is_refused_and_leaves_nothing(runtime: ProcessRuntime, argv: tuple[str, ...]) -> None:
    with pytest.raises(LaunchError):
        runtime.start(Launch("a-1", "", Filled("t", argv), 0))
    assert runtime.find() == ()


def test_a_file_that_is_no_program_is_named_by_the_launcher(runtime: ProcessRuntime, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.write_bytes(b"\x7fELF and nothing more")
    broken.chmod(0o755)
    with pytest.raises(LaunchError, match="broken: Exec format error"):
        runtime.start(Launch("a-1", "", Filled("t", (str(broken),)), 0))


@pytest.mark.slow
def test_no_descriptor_of_the_agent_stays_open_after_a_start(runtime: ProcessRuntime) -> None:
    before = descriptors()
    for number in range(5):
        runtime.start(launched(f"a-{number}", SLEEPER))
    assert descriptors() <= before


@pytest.mark.slow
def test_copies_that_come_and_go_leave_neither_processes_nor_files_nor_descriptors(
    runtime: ProcessRuntime, tmp_path: Path
) -> None:
    before = descriptors()
    for number in range(scaled(3000, 30)):
        running = runtime.start(launched(f"a-{number}", "sleep 600 & wait"))
        pids = runtime.pids(running)
        runtime.end(running, force=number % 2 == 0)
        runtime.end(running, force=True)
        until(lambda running=running: not runtime.alive(running))  # type: ignore[misc]
        until(lambda pids=pids: not any(map(running_now, pids)))  # type: ignore[misc]
        runtime.tidy(())
    assert runtime.find() == ()
    assert not runtime._children
    assert descriptors() <= before
    assert list((tmp_path / "copies" / "logs").iterdir()) == []
