"""Cgroups as containerd makes them, `.../kubepods/pod<UID>/<container>`: one write ends all of a group."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from agents.runtime.cgroups import kill, members
from tests.support.needs import need_root, skip_unless_ci
from tests.support.patience import until


def make_root(name: str) -> Path:
    """Makes a group for all of a kubelet's processes, beneath that of this process."""
    need_root("to make cgroups")
    mounts = (line.partition(" - ") for line in Path("/proc/self/mountinfo").read_text().splitlines())
    found = [where.split()[4] for where, _, what in mounts if what.startswith("cgroup2 ")]
    own = [line[3:] for line in Path("/proc/self/cgroup").read_text().splitlines() if line.startswith("0::")]
    if not found or not own:
        skip_unless_ci("this machine has no cgroups of version 2")
    root = Path(found[0] + own[0]) / name
    try:
        root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        skip_unless_ci(f"no cgroup can be made here: {error}")
    return root


def find_first(group: Path) -> int:
    """Returns the process that the others descend from: no other began before it. 0 where there is none."""
    return min(members(group), key=_read_start, default=0)


def remove(group: Path) -> None:
    """Ends all of its processes and removes it with those beneath it."""
    if not group.is_dir():
        return
    kill(group)
    until(lambda: "populated 0" in (group / "cgroup.events").read_text(), f"all of {group} have ended")
    for folder, _, _ in os.walk(group, topdown=False):
        with suppress(FileNotFoundError):
            Path(folder).rmdir()


def _read_start(pid: int) -> tuple[int, int]:
    with suppress(OSError):
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]), pid
    return 1 << 62, pid
