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
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from agents.admission.programs import SEARCH_PATH, open_program
from agents.host.clocks import boot_id
from agents.runtime import Launch, LaunchError, Running, proc
from agents.runtime.cgroups import Cgroups, kill, members
from agents.runtime.logs import LARGEST_BYTES, Logs
from agents.seams.mps_variables import VISIBLE_DEVICES_VARIABLE
from agents.templates import Confined, Filled

_LAUNCHER = str(Path(__file__).with_name("launcher.py"))
_LAUNCH_SECONDS = 30.0  # on a machine whose disk hangs
_COPY, _FOLDER = "GPUWRIGHT_COPY", "GPUWRIGHT_FOLDER"
_MOST_SWEEPS = 20
_NAME = re.compile(r"[!-~]{1,200}")


class ProcessCopies:
    """Copies that belong to one folder. Agents with different folders do not see each other's."""

    def __init__(
        self,
        folder: Path,
        cgroups: bool | Cgroups = True,
        largest_log_bytes: int = LARGEST_BYTES,
        users: Collection[int] = (),
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._folder = folder.resolve()
        self._logs = Logs(self._folder / "logs", largest_log_bytes)
        self._cgroups = cgroups if isinstance(cgroups, Cgroups) else Cgroups(self._folder, cgroups)
        self._users = frozenset(users)  # besides its own: whom users' commands run as
        self._boot_id = boot_id()
        self._children: dict[int, tuple[str, subprocess.Popen[bytes]]] = {}
        self._codes: dict[str, int] = {}  # of copies that ended while this agent ran

    def find(self) -> tuple[Running, ...]:
        """Returns one process of each copy: its session leader, or another one when that is gone."""
        first: dict[str, proc.ProcessInfo] = {}
        for copy, process in self._list_marked():
            known = first.get(copy)
            if known is None or _order(process) < _order(known):
                first[copy] = process
        return tuple(Running(copy, process.pid, process.start_ticks, self._boot_id) for copy, process in first.items())

    def withdraw(self, copy: str, running: Running | None = None) -> None:
        """Nothing starts a copy but the agent."""

    def find_called_away(self) -> dict[str, float]:
        return {}  # nobody ends them but the agent

    def announce(self, running: Running) -> None:
        """Nobody waits for it but the agent."""

    def alive(self, running: Running) -> bool:
        if running.boot_id != self._boot_id:
            return False
        process = proc.read_process(running.pid)
        if process is None or process.start_ticks != running.start_ticks:
            return False
        if process.zombie:
            self._reap()
        return not process.zombie

    def stopped(self, running: Running) -> bool:
        process = proc.read_process(running.pid) if running.boot_id == self._boot_id else None
        return process is not None and process.start_ticks == running.start_ticks and process.stopped

    def pids(self, running: Running) -> frozenset[int]:
        if not self.alive(running):
            return frozenset(self._remaining(running))
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

    def run_beside(self, running: Running, filled: Filled, seconds: float) -> bool:
        if not self.alive(running):
            return False
        environment = _select_inherited(proc.read_environment(running.pid), filled)
        group = self._cgroups.of(running.pid, running.copy)
        read_end, write_end = os.pipe2(os.O_CLOEXEC)
        log = self._logs.open(running.copy)
        limiting = self._cgroups.limiting_group(running.copy)
        marks = (str(write_end), str(group or ""), limiting, "0")
        try:
            child = _launch(filled, filled.checkpoint_command, marks, environment, log)
        except OSError as error:
            raise LaunchError(f"{running.copy}: {error}") from error
        finally:
            for descriptor in (log, read_end, write_end):
                os.close(descriptor)
        try:
            return child.wait(seconds) == 0
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()
            return False

    def exit_code(self, running: Running) -> int | None:
        self._reap()
        return self._codes.get(running.copy)

    def log_tail(self, copy: str) -> str:
        return self._logs.tail(copy)

    def read_log(self, copy: str, offset: int | None, most_bytes: int) -> tuple[bytes, int]:
        return self._logs.read(copy, offset, most_bytes)

    def tidy(self, copies: Collection[str]) -> None:
        self._reap()
        self._logs.tidy(copies)
        self._codes = {copy: code for copy, code in self._codes.items() if copy in copies}
        self._cgroups.tidy()  # including copies that an earlier agent started

    def close(self) -> None:
        """It holds nothing open."""

    def _environment(self, launch: Launch) -> dict[str, str]:
        """Returns the environment: nothing of the agent's, and the limits last, so that a template cannot lift them."""
        plain = {"PATH": SEARCH_PATH, "LANG": "C.UTF-8"}
        ours = {_COPY: launch.copy, _FOLDER: str(self._folder)}
        if launch.gpu:
            ours[VISIBLE_DEVICES_VARIABLE] = launch.gpu
        confined = launch.filled.confined
        secrets = dict(confined.secrets) if confined else {}
        return plain | dict(launch.filled.environment) | secrets | ours | dict(launch.limits)

    def _send(self, running: Running, number: signal.Signals) -> None:
        if running.boot_id == self._boot_id:
            proc.send(running.pid, running.start_ticks, number)

    def _kill(self, running: Running) -> None:
        """Kills all processes of a copy, repeatedly until none is left."""
        killed: set[tuple[int, int]] = set()
        for _ in range(_MOST_SWEEPS):
            alive = self.alive(running)
            group = self._cgroups.of(running.pid, running.copy) if alive else self._cgroups.leftover(running.copy)
            pids = self._remaining(running) | (set(self.pids(running)) if alive else set())
            if group:
                kill(group)
            found = {
                (process.pid, process.start_ticks)
                for process in map(proc.read_process, pids)
                if process and not process.zombie
            }
            if found <= killed:
                return
            for pid, start_ticks in found - killed:
                proc.send(pid, start_ticks, signal.SIGKILL)
            killed |= found

    def _remaining(self, running: Running) -> set[int]:
        """Returns every process that carries the copy's mark, in any session."""
        group = self._cgroups.leftover(running.copy)
        marked = {process.pid for copy, process in self._list_marked() if copy == running.copy}
        return marked | (members(group) if group else set())

    def _list_marked(self) -> list[tuple[str, proc.ProcessInfo]]:
        found = []
        for pid in proc.own_pids(self._users):
            copy = self._copy_of(pid)
            process = proc.read_process(pid) if copy else None
            if process and not process.zombie:
                found.append((copy, process))
        return found

    def _copy_of(self, pid: int) -> str:
        copy = self._cgroups.copy_of(pid)
        if not copy:
            copy = next(filter(None, map(self._logs.copy, proc.output_files(pid))), "")
        if not copy and proc.read_variable(pid, _FOLDER) == str(self._folder):
            copy = proc.read_variable(pid, _COPY)
        return copy if _NAME.fullmatch(copy) else ""  # any process of this user may claim any name

    def _reap(self) -> None:
        """Reaps only our own children, by PID, so that no one else's wait is disturbed."""
        ended = [(pid, *found) for pid, found in list(self._children.items()) if found[1].poll() is not None]
        for pid, copy, child in ended:
            self._codes[copy] = child.returncode if child.returncode >= 0 else 128 - child.returncode
            self._children.pop(pid, None)
        if ended:
            self._cgroups.tidy()


class ProcessRuntime(ProcessCopies):
    """Copies that are the agent's own children."""

    def start(self, launch: Launch) -> Running:
        environment = self._environment(launch)
        read_end, write_end = os.pipe2(os.O_CLOEXEC)
        try:
            log = self._logs.open(launch.copy)
            groups = self._cgroups.make(launch.copy, launch.limits)
            marks = (str(write_end), *groups, str(launch.oom_score))
            try:
                child = _launch(launch.filled, launch.filled.argv, marks, environment, log)
            finally:
                os.close(log)
                os.close(write_end)
            process = proc.read_process(child.pid)
            why_not = _last_words(read_end)
        except (OSError, ValueError) as error:
            raise LaunchError(f"{launch.copy}: {error}") from error
        finally:
            os.close(read_end)
            self._cgroups.mark_entered(launch.copy)
        self._codes.pop(launch.copy, None)
        self._children[child.pid] = (launch.copy, child)
        if process is None or why_not:  # never None: a child that is not reaped keeps its entry
            os.killpg(child.pid, signal.SIGKILL)
            raise LaunchError(f"{launch.copy}: {why_not}")
        return Running(launch.copy, child.pid, process.start_ticks, self._boot_id)


def _launch(
    filled: Filled, argv: Sequence[str], marks: Sequence[str], environment: Mapping[str, str], log: int
) -> subprocess.Popen[bytes]:
    """Starts a command: a template's by its path, a user's own by the descriptor of what has just been checked."""
    if filled.confined is None:
        return _become([*marks, "", "", *resolve_program(argv, environment.get("PATH", SEARCH_PATH))], environment, log)
    with open_program(argv) as program:
        words = [*marks, name_user(filled.confined), str(program.descriptor), *program.argv]
        return _become(words, environment, log, (program.descriptor,))


def _become(
    words: Sequence[str], environment: Mapping[str, str], log: int, descriptors: tuple[int, ...] = ()
) -> subprocess.Popen[bytes]:
    """Starts the launcher in a session of its own: it prepares the process, then becomes the command."""
    return subprocess.Popen(
        [sys.executable, "-I", "-S", _LAUNCHER, *words],
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        env=environment,
        cwd="/",
        umask=0o077,
        start_new_session=True,
        pass_fds=(int(words[0]), *descriptors),
    )


def name_user(confined: Confined) -> str:
    """Returns whom a user's command runs as, for the launcher: - for this user."""
    return "-" if confined.user is None else str(confined.user)


def _select_inherited(environment: Mapping[str, str], filled: Filled) -> dict[str, str]:
    """Returns what the command that saves inherits. A user's own copy may have changed its environment since its start,
    and the launcher still has the agent's rights: so only names that the copy was started with."""
    if filled.confined is None:
        return dict(environment)
    given = filled.environment.keys() | filled.confined.secrets.keys() | {"PATH", "LANG"}
    ours = ("GPUWRIGHT_", "CUDA_")
    return {name: value for name, value in environment.items() if name in given or name.startswith(ours)}


def _order(process: proc.ProcessInfo) -> tuple[bool, int, int]:
    return (process.session != process.pid, process.start_ticks, process.pid)


def resolve_program(argv: Sequence[str], path: str) -> list[str]:
    """Returns the program's full path, since the launcher does not search."""
    program, *rest = argv or [""]
    folders = ("/",) if "/" in program else path.split(":")  # it runs in /
    for found in (Path(folder, program) for folder in folders):
        if program and os.access(found, os.X_OK) and found.is_file():
            return [str(found), *rest]
    raise LaunchError(f"program {program!r} does not exist or is not executable")


def _last_words(pipe: int) -> str:
    """Returns the launcher's error; empty when the program runs in its place."""
    output = b""
    poll = select.poll()
    poll.register(pipe, select.POLLIN)
    while poll.poll(_LAUNCH_SECONDS * 1000):
        part = os.read(pipe, 4096)
        if not part:
            return output.decode(errors="replace")
        output += part
    return f"not started within {_LAUNCH_SECONDS:g} s"
