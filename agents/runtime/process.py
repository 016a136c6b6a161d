"""Copies as processes of this machine: children that outlive the agent, found again and ended by their marks.

Each copy leads its own session, in its own cgroup where that is allowed. Three marks identify it to a restarted
agent: its cgroup, the log that it writes to, and its environment. A program can hide one of them (some overwrite
their environment to change their title, some close their outputs), but hardly all.
"""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import sys
from collections.abc import Collection, Sequence
from pathlib import Path

from agents.host.clocks import boot_id
from agents.runtime import Launch, LaunchError, Running, proc
from agents.runtime.cgroups import Cgroups, kill, members
from agents.runtime.logs import LARGEST_BYTES, Logs

_LAUNCHER = str(Path(__file__).with_name("launcher.py"))
_LAUNCH_SECONDS = 30.0  # on a machine whose disk hangs
_COPY, _FOLDER = "GPUWRIGHT_COPY", "GPUWRIGHT_FOLDER"
_SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_MOST_SWEEPS = 20
_NAME = re.compile(r"[!-~]{1,200}")


class ProcessRuntime:
    """Copies that belong to one folder. Agents with different folders do not see each other's."""

    def __init__(self, folder: Path, cgroups: bool = True, largest_log_bytes: int = LARGEST_BYTES) -> None:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._folder = folder.resolve()
        self._logs = Logs(self._folder / "logs", largest_log_bytes)
        self._cgroups = Cgroups(self._folder, cgroups)
        self._boot_id = boot_id()
        self._children: dict[int, subprocess.Popen[bytes]] = {}

    def start(self, launch: Launch) -> Running:
        environment = self._environment(launch)
        argv = _resolved(launch.filled.argv, environment["PATH"])
        heard, said = os.pipe2(os.O_CLOEXEC)
        try:
            log = self._logs.open(launch.copy)
            marks = (str(said), self._cgroups.make(launch.copy), str(launch.oom_score))
            try:
                child = subprocess.Popen(
                    [sys.executable, "-I", "-S", _LAUNCHER, *marks, *argv],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env=environment,
                    cwd="/",
                    umask=0o077,
                    start_new_session=True,
                    pass_fds=(said,),
                )
            finally:
                os.close(log)
                os.close(said)
            seen = proc.see(child.pid)
            why_not = _last_words(heard)
        except (OSError, ValueError) as error:
            raise LaunchError(f"{launch.copy}: {error}") from error
        finally:
            os.close(heard)
            self._cgroups.entered(launch.copy)
        self._children[child.pid] = child
        if seen is None or why_not:  # never None: a child that is not reaped keeps its entry
            os.killpg(child.pid, signal.SIGKILL)
            raise LaunchError(f"{launch.copy}: {why_not}")
        return Running(launch.copy, child.pid, seen.start_ticks, self._boot_id)

    def find(self) -> tuple[Running, ...]:
        """Returns one process of each copy: its session leader, or another one when that is gone."""
        first: dict[str, proc.ProcessInfo] = {}
        for copy, seen in self._marked():
            known = first.get(copy)
            if known is None or _order(seen) < _order(known):
                first[copy] = seen
        return tuple(Running(copy, seen.pid, seen.start_ticks, self._boot_id) for copy, seen in first.items())

    def alive(self, running: Running) -> bool:
        if running.boot_id != self._boot_id:
            return False
        seen = proc.see(running.pid)
        if seen is None or seen.start_ticks != running.start_ticks:
            return False
        if seen.zombie:
            self._reap()
        return not seen.zombie

    def pids(self, running: Running) -> frozenset[int]:
        if not self.alive(running):
            return frozenset(self._left(running))
        group = self._cgroups.of(running.pid, running.copy)
        return frozenset(members(group) if group else proc.descendants(running.pid))

    def end(self, running: Running, force: bool) -> None:
        if force:
            self._kill(running)
        else:
            self._send(running, signal.SIGTERM)
        self._reap()

    def tell(self, running: Running, signal_name: str) -> None:
        self._send(running, signal.Signals[signal_name])

    def log_tail(self, copy: str) -> str:
        return self._logs.tail(copy)

    def tidy(self, copies: Collection[str]) -> None:
        self._reap()
        self._logs.tidy(copies)
        self._cgroups.tidy()  # including copies that an earlier agent started

    def _environment(self, launch: Launch) -> dict[str, str]:
        """Returns the environment: nothing of the agent's, and the limits last, so that a template cannot lift them."""
        plain = {"PATH": f"{Path(sys.executable).parent}:{_SYSTEM_PATH}", "LANG": "C.UTF-8"}
        ours = {_COPY: launch.copy, _FOLDER: str(self._folder)}
        if launch.gpu:
            ours["CUDA_VISIBLE_DEVICES"] = launch.gpu
        return plain | dict(launch.filled.environment) | ours | dict(launch.limits)

    def _send(self, running: Running, number: signal.Signals) -> None:
        if running.boot_id == self._boot_id:
            proc.send(running.pid, running.start_ticks, number)

    def _kill(self, running: Running) -> None:
        """Kills all processes of a copy, repeatedly until none is left."""
        killed: set[tuple[int, int]] = set()
        for _ in range(_MOST_SWEEPS):
            alive = self.alive(running)
            group = self._cgroups.of(running.pid, running.copy) if alive else self._cgroups.left(running.copy)
            pids = self._left(running) | (set(self.pids(running)) if alive else set())
            if group:
                kill(group)
            found = {(seen.pid, seen.start_ticks) for seen in map(proc.see, pids) if seen and not seen.zombie}
            if found <= killed:
                return
            for pid, start_ticks in found - killed:
                proc.send(pid, start_ticks, signal.SIGKILL)
            killed |= found

    def _left(self, running: Running) -> set[int]:
        """Returns every process that carries the copy's mark, in any session."""
        group = self._cgroups.left(running.copy)
        marked = {seen.pid for copy, seen in self._marked() if copy == running.copy}
        return marked | (members(group) if group else set())

    def _marked(self) -> list[tuple[str, proc.ProcessInfo]]:
        found = []
        for pid in proc.own():
            copy = self._copy_of(pid)
            seen = proc.see(pid) if copy else None
            if seen and not seen.zombie:
                found.append((copy, seen))
        return found

    def _copy_of(self, pid: int) -> str:
        copy = self._cgroups.copy_of(pid)
        if not copy:
            copy = next(filter(None, map(self._logs.copy, proc.outputs(pid))), "")
        if not copy and proc.environment(pid, _FOLDER) == str(self._folder):
            copy = proc.environment(pid, _COPY)
        return copy if _NAME.fullmatch(copy) else ""  # any process of this user may claim any name

    def _reap(self) -> None:
        """Reaps only our own children, by PID, so that no one else's wait is disturbed."""
        ended = [pid for pid, child in list(self._children.items()) if child.poll() is not None]
        for pid in ended:
            self._children.pop(pid, None)
        if ended:
            self._cgroups.tidy()


def _order(seen: proc.ProcessInfo) -> tuple[bool, int, int]:
    return (seen.session != seen.pid, seen.start_ticks, seen.pid)


def _resolved(argv: Sequence[str], path: str) -> list[str]:
    """Returns the program's full path, since the launcher does not search."""
    program, *rest = argv or [""]
    folders = ("/",) if "/" in program else path.split(":")  # it runs in /
    for found in (Path(folder, program) for folder in folders):
        if program and os.access(found, os.X_OK) and found.is_file():
            return [str(found), *rest]
    raise LaunchError(f"program {program!r} does not exist or is not executable")


def _last_words(heard: int) -> str:
    """Returns the launcher's error; empty when the program runs in its place."""
    said = b""
    poll = select.poll()
    poll.register(heard, select.POLLIN)
    while poll.poll(_LAUNCH_SECONDS * 1000):
        part = os.read(heard, 4096)
        if not part:
            return said.decode(errors="replace")
        said += part
    return f"not started within {_LAUNCH_SECONDS:g} s"
