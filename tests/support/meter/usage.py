"""The CPU seconds that this process and all that it started have used."""

from __future__ import annotations

import atexit
import os
import resource
from abc import ABC, abstractmethod
from contextlib import suppress
from pathlib import Path

from agents.runtime import proc

GROUPS = Path("/sys/fs/cgroup")
PREFIX = "gpuwright-tests-"
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


class Usage(ABC):
    @abstractmethod
    def seconds(self) -> float:
        """Since this process began to be measured."""


class ControlGroup(Usage):
    """The kernel's own sum over a group of processes: none that ends, or leaves its parent, is lost."""

    def __init__(self, around: Path) -> None:
        for left in around.glob(f"{PREFIX}*"):
            with suppress(OSError):  # processes are in it
                left.rmdir()
        self._around, self._group = around, around / f"{PREFIX}{os.getpid()}"
        self._group.mkdir(exist_ok=True)
        (self._group / "cgroup.procs").write_text(str(os.getpid()))
        atexit.register(self._leave)

    def _leave(self) -> None:
        with suppress(OSError):
            (self._around / "cgroup.procs").write_text(str(os.getpid()))
            self._group.rmdir()


class FirstVersion(ControlGroup):
    def seconds(self) -> float:
        return int((self._group / "cpuacct.usage").read_text()) / 1e9


class SecondVersion(ControlGroup):
    def seconds(self) -> float:
        words = (self._group / "cpu.stat").read_text().split()
        return int(words[words.index("usage_usec") + 1]) / 1e6


class ProcessTree(Usage):
    """Where no group may be made: this process, its children that ended, and those that run. Strays are missed."""

    def seconds(self) -> float:
        ours = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
        return sum(used.ru_utime + used.ru_stime for used in ours) + sum(
            map(_tree_seconds, proc.list_children(os.getpid()))
        )


def usage_of_this_process() -> Usage:
    places = dict(line.split(":", 2)[1:] for line in Path("/proc/self/cgroup").read_text().splitlines())
    named = next((place for controllers, place in places.items() if "cpuacct" in controllers.split(",")), None)
    try:
        if named is not None:
            return FirstVersion(_folder(GROUPS / "cpuacct", named))
        return SecondVersion(_folder(GROUPS, places.get("", "/")))
    except OSError:
        return ProcessTree()


def _folder(mount: Path, place: str) -> Path:
    """In a container, a path of the host's names no folder."""
    folder = mount / place.lstrip("/")
    return folder if folder.is_dir() else mount


def _tree_seconds(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return sum(map(int, fields[11:15])) / TICKS_PER_SECOND + sum(map(_tree_seconds, proc.list_children(pid)))
    except OSError:
        return 0.0  # it has just ended
