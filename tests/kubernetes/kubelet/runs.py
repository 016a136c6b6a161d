"""One run of a container: a real process of this machine, in its own cgroup and PID namespace.

A shell beside it waits for its end and writes it down, as containerd's shim does: so it outlives the kubelet, and the
kubelet's next start finds it. Its files are of this machine; what is mounted is bound into a namespace of its own.
"""

from __future__ import annotations

import os
import secrets
import shlex
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from agents.runtime.cgroups import kill, members
from tests.kubernetes.kubelet.groups import find_first, remove
from tests.support.needs import need
from tests.support.patience import until

START_ERROR = 128  # the exit code that containerd gives to what it could not start
KILLED = 137
# Its arguments: its own group, that of the container, the file for the exit code, and the command.
SHIM = """
echo 0 > "$1/cgroup.procs"; group=$2 file=$3; shift 3
"$@"
echo $? > "$file.new"; echo 1 > "$group/cgroup.kill"; mv "$file.new" "$file"
"""
# Its arguments: the group, the working directory, the score for the OOM killer, and the command.
INSIDE = """
cd "$2"; echo "$3" > /proc/self/oom_score_adj; echo 0 > "$1/cgroup.procs"; shift 3
exec "$@"
"""
# The first child is the first process of the namespace. Where processes are shared, it is of none of the containers.
HELD = "/mnt"
AS_CHILD = 'sh -c "$@"; exit $?'


@dataclass(frozen=True, slots=True)
class Mount:
    """A folder or file of this machine that a container sees at a path."""

    source: str
    path: str
    read_only: bool = False


@dataclass(frozen=True, slots=True)
class Command:
    """All that a run needs to know."""

    words: Sequence[str]
    environment: Mapping[str, str]
    folder: str = "/"
    user: int | None = None
    group: int | None = None
    mounts: Sequence[Mount] = ()
    read_only_root: bool = False
    bound: bool = False  # to the rights that it starts with, and these without any capability but those that are added
    added: Sequence[str] = ()
    host_processes: bool = False
    shared_processes: bool = False
    oom_score: int = 0


class Run:
    """One that was started at some time; its folder says all about it."""

    def __init__(self, folder: Path, groups: Path, pod: str) -> None:
        self.folder = folder
        self.id = (folder / "id").read_text()
        self.log = folder / "log"
        self.group = groups / "kubepods" / f"pod{pod}" / self.id
        # Its path does not have the ID, by which others find the processes of the container.
        self._shim = groups / "shims" / f"{pod}-{folder.parent.name}-{folder.name}"
        self._exit = folder / "exit"

    @property
    def started(self) -> float:
        return (self.folder / "id").stat().st_mtime

    @property
    def finished(self) -> float:
        with suppress(OSError):
            return self._exit.stat().st_mtime
        return self.started

    @property
    def start_error(self) -> str:
        """Says why it could not be started at all."""
        with suppress(OSError):
            return (self.folder / "error").read_text()
        return ""

    def read_exit(self) -> int | None:
        """Returns its exit code, None while it runs."""
        if not self._exit.exists():
            if members(self._shim):
                return None
            if not self._exit.exists():
                return KILLED  # together with its shim
        return int(self._exit.read_text())

    def find_process(self) -> int:
        """Returns the PID of its first process; 0 where it has ended."""
        return find_first(self.group)

    def signal(self, number: signal.Signals) -> None:
        pid = self.find_process()
        with suppress(ProcessLookupError):
            if pid:
                os.kill(pid, number)

    def kill(self) -> None:
        kill(self.group)

    def remove_groups(self) -> None:
        for group in (self.group, self._shim):
            remove(group)

    def execute(self, words: Sequence[str]) -> subprocess.Popen[bytes]:
        """Runs a command as one more process of the container."""
        pid = self.find_process()
        enter = 'echo 0 > "$1/cgroup.procs"; shift; exec "$@"'
        environment = read_environment(pid)
        return subprocess.Popen(
            [*_words("nsenter", f"--target={pid}", "--pid", "--mount"), "/bin/sh", "-c", enter, "sh", str(self.group),
             *_words("env", "-i", *environment), *words],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip

    def start(self, command: Command) -> None:
        program = command.words[0]
        if shutil.which(program, path=command.environment.get("PATH")) is None:
            error = f'exec: "{program}": stat {program}: no such file or directory'
            (self.folder / "error").write_text(f"failed to create containerd task: {error}: unknown")
            self._exit.write_text(str(START_ERROR))
            return
        for group in (self.group, self._shim):
            group.mkdir(parents=True, exist_ok=True)
        shim = ("/bin/sh", "-c", SHIM, "shim", str(self._shim), str(self.group), str(self._exit))
        with self.log.open("ab") as log:
            subprocess.run(
                [*_words("setsid", "--fork"), *shim, *_wrap(command, self.group)],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, check=True, cwd="/", env={"PATH": os.defpath},
            )  # fmt: skip
        until(lambda: self._exit.exists() or members(self.group), f"{program} starts")


def make_run(folder: Path, groups: Path, pod: str) -> Run:
    """Makes the folder of a run that was not started yet."""
    folder.mkdir(parents=True)
    (folder / "log").touch()
    (folder / "id").write_text(secrets.token_hex(32))
    return Run(folder, groups, pod)


def read_environment(pid: int) -> list[str]:
    with suppress(OSError):
        return [part for part in Path(f"/proc/{pid}/environ").read_text(errors="replace").split("\0") if part]
    return []


def _wrap(command: Command, group: Path) -> list[str]:
    """Returns the words that start a command in namespaces, its group and as its user."""
    inside = [_write_mounts(command) + INSIDE, "inside", str(group), command.folder, str(command.oom_score)]
    words = [*inside, *_become(command), *_words("env", "-i")]
    words += [*(f"{name}={value}" for name, value in command.environment.items()), *command.words]
    if command.host_processes:
        return [*_words("unshare", "--mount"), "/bin/sh", "-c", *words]
    first = [AS_CHILD, "init"] if command.shared_processes else []
    return [*_words("unshare", "--mount", "--pid"), "/bin/sh", "-c", AS_CHILD, "parent", *first, *words]


def _write_mounts(command: Command) -> str:
    """Returns lines of shell. Sources are held elsewhere first, for a mount may cover another one's source."""
    lines = ["set -e"]
    if not command.host_processes:
        lines.append("mount -t proc proc /proc")
    if command.mounts:
        lines.append(f"mount -t tmpfs held {HELD}")
    mounts = sorted(command.mounts, key=lambda mount: mount.path)  # what is inside another comes after it
    for number, mount in enumerate(mounts):
        make = "mkdir -p" if Path(mount.source).is_dir() else "touch"
        lines.append(f"{make} {HELD}/{number}; mount --bind {shlex.quote(mount.source)} {HELD}/{number}")
    for number, mount in enumerate(mounts):
        path = shlex.quote(mount.path)
        make = "mkdir -p" if Path(mount.source).is_dir() else "touch"
        lines.append(f"[ -e {path} ] || {make} {path}; mount --bind {HELD}/{number} {path}")
        if mount.read_only:
            lines.append(f"mount -o remount,bind,ro {path}")
    if command.mounts:
        lines.append(f"umount --recursive {HELD}")
    if command.read_only_root:
        lines.append("mount -o remount,bind,ro /")
    return "\n".join(lines)


def _become(command: Command) -> list[str]:
    words = []
    if command.user is not None or command.group is not None:
        words += [f"--reuid={command.user or 0}", f"--regid={command.group or 0}", "--clear-groups"]
    if command.bound:
        left = "".join(f",+{name.lower()}" for name in command.added)
        words += ["--no-new-privs", f"--bounding-set=-all{left}", "--inh-caps=-all"]
    return _words("setpriv", *words) if words else []


def _words(program: str, *words: str) -> list[str]:
    return [need(program, "util-linux"), *words]
