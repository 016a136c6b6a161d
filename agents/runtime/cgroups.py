"""A cgroup for each copy, if the agent may create one: no descendant can leave it, and one write kills them all.

The agent simply tries: in a container or without delegation it has none, and then identifies copies by other marks.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote, unquote

from agents.runtime import proc

SUFFIX = ".copy"  # so that no copy can be named `..` or `cgroup.procs`


class Cgroups:
    """The cgroups of one folder's copies, beneath the agent's own."""

    def __init__(self, folder: Path, wanted: bool = True) -> None:
        self.name = "gpuwright-" + quote(str(folder), safe="")[-200:]
        self._mount = _mount()
        self.base: Path | None = None
        self.awaited: set[str] = set()  # made, but still empty
        own = _group_of("self") if wanted else None
        if self._mount and own is not None:
            self.base = Path(f"{self._mount}{own}") / self.name

    def make(self, copy: str, limits: Mapping[str, str] | None = None) -> tuple[str, str]:
        """Returns the folder of a new group, and that of one which the copy must enter; empty where there is none."""
        if self.base is None:
            return "", ""
        path = self.base / self.folder_of(copy)
        self.awaited.add(path.name)
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError:
            return "", ""
        return str(path), ""

    def limiting_group(self, copy: str) -> str:
        """Returns the folder of the group, besides its own, that limits a copy's CPU time; empty without one."""
        return ""

    @staticmethod
    def folder_of(copy: str) -> str:
        """Returns the name of a copy's group."""
        return quote(copy, safe="") + SUFFIX

    def mark_entered(self, copy: str) -> None:
        """Marks a group as entered: from now on it is removed once it is empty."""
        self.awaited.discard(self.folder_of(copy))

    def of(self, pid: int, copy: str) -> Path | None:
        """Returns the group that a living process was started in."""
        group = _group_of(pid)
        mine = group is not None and group.endswith(f"/{self.name}/{self.folder_of(copy)}")
        return Path(f"{self._mount}{group}") if mine else None

    def leftover(self, copy: str) -> Path | None:
        """Returns the group of a copy whose first process is gone."""
        path = self.base / self.folder_of(copy) if self.base else None
        return path if path and path.is_dir() else None

    def tidy(self) -> None:
        """Removes empty groups; the kernel refuses to remove others."""
        if self.base is None:
            return
        for path in self.base.glob(f"*{SUFFIX}"):
            if path.name not in self.awaited:
                with suppress(OSError):
                    path.rmdir()
        if not self.awaited:
            with suppress(OSError):
                self.base.rmdir()

    def copy_of(self, pid: int) -> str:
        """Returns the copy that a process belongs to by its group; empty when it is in none of ours."""
        above, _, name = (_group_of(pid) or "").rpartition("/")
        return unquote(name.removesuffix(SUFFIX)) if above.endswith(f"/{self.name}") else ""


def members(group: Path) -> set[int]:
    return set(map(int, proc.read(str(group / "cgroup.procs")).split()))


def kill(group: Path) -> None:
    with suppress(OSError):  # before Linux 5.14: the members are killed one by one
        (group / "cgroup.kill").write_text("1", encoding="ascii")


def _mount() -> str:
    """Returns where version 2 is mounted; empty when it is not."""
    for line in proc.read("/proc/self/mountinfo").decode(errors="replace").splitlines():
        where, _, what = line.partition(" - ")
        if what.startswith("cgroup2 "):
            return where.split()[4]
    return ""


def _group_of(pid: int | str) -> str | None:
    for line in proc.read(f"/proc/{pid}/cgroup").decode(errors="replace").splitlines():
        if line.startswith("0::"):
            return line[3:].rstrip("/")
    return None
