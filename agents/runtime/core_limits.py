"""Limits of CPU time and memory as the kernel's cgroups have them: cpu.max of version 2, the cpu quota of version 1."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from agents.runtime import proc

PERIOD_US = 10_000  # as short as most batches, so that a limited copy is slow evenly instead of stopping now and then
LEAST_QUOTA_US = 1_000  # the kernel's
LONGEST_PERIOD_US = 1_000_000  # the kernel's
TOLERANCE_SHARE = 0.01
SPARE_SHARE, SPARE_GIB = 0.25, 0.0625  # beyond the planned memory: the kernel counts a copy's files, too


class NoCoreLimits(OSError):
    """This machine cannot limit a copy's CPU time; the message says what to do."""


class CoreLimits(Protocol):
    """One of the kernel's two forms of a limit."""

    @property
    def parent(self) -> Path:
        """Returns the group under which copies get theirs."""

    @property
    def tracks(self) -> bool:
        """Returns True if its groups are of version 2, which also find copies."""

    def set(self, group: Path, cores: float, memory_gib: float) -> None: ...

    def cores(self, group: Path) -> float | None:
        """Returns the limit in force; None if there is none."""


@dataclass(frozen=True, slots=True)
class CgroupLimitsV2:
    """cpu.max and, where the memory controller is there, memory.max."""

    parent: Path
    tracks: bool = True

    def set(self, group: Path, cores: float, memory_gib: float) -> None:
        _enable(group.parent.parent)
        _enable(group.parent)
        quota, period = quota_of(cores)
        _write(group / "cpu.max", f"{quota} {period}")
        if "memory" in _words(group.parent / "cgroup.subtree_control") and memory_gib > 0:
            _write(group / "memory.max", str(most_bytes(memory_gib)))

    def cores(self, group: Path) -> float | None:
        words = _words(group / "cpu.max")
        return _ratio(words[0], words[1]) if len(words) == 2 else None


@dataclass(frozen=True, slots=True)
class CgroupLimitsV1:
    """The quota of the cpu controller. Memory is not limited: its controller is a tree of its own."""

    parent: Path
    tracks: bool = False

    def set(self, group: Path, cores: float, memory_gib: float) -> None:
        quota, period = quota_of(cores)
        _write(group / "cpu.cfs_period_us", str(period))
        _write(group / "cpu.cfs_quota_us", str(quota))

    def cores(self, group: Path) -> float | None:
        quota, period = (_words(group / f"cpu.cfs_{name}_us") for name in ("quota", "period"))
        return _ratio(quota[0], period[0]) if quota and period else None


def find_limits(given: Path | None = None, mountinfo: str = "/proc/self/mountinfo") -> CoreLimits:
    """Returns the form that works here, under `given` or where the kernel's is mounted; raises NoCoreLimits."""
    if given is not None:
        return _try_out(_read_folder(given))
    mounts = _mounts(mountinfo)
    version2 = next((where for where, kind, _ in mounts if kind == "cgroup2"), None)
    if version2 is not None and "cpu" in _words(version2 / "cgroup.controllers"):
        return _try_out(CgroupLimitsV2(version2))
    for where, kind, options in mounts:
        if kind == "cgroup" and "cpu" in options.split(","):
            return _try_out(CgroupLimitsV1(where / _own_group("cpu").lstrip("/")))
    raise NoCoreLimits(
        "this machine has no cgroup with the cpu controller, so no share of its cores can be enforced; boot it with "
        "cgroup version 2 (systemd.unified_cgroup_hierarchy=1), and in a container mount /sys/fs/cgroup writable"
    )


def quota_of(cores: float) -> tuple[int, int]:
    """Returns microseconds of CPU time, and the period in which they may be spent."""
    if not 0 < cores < math.inf:
        raise ValueError(f"{cores:g} cores are no share")
    period = min(max(PERIOD_US, math.ceil(LEAST_QUOTA_US / cores)), LONGEST_PERIOD_US)
    return max(LEAST_QUOTA_US, round(cores * period)), period


def most_bytes(memory_gib: float) -> int:
    """Returns the memory beyond which the kernel ends a copy: somewhat more than planned."""
    return int((memory_gib * (1 + SPARE_SHARE) + SPARE_GIB) * 2**30)


def is_in_force(found: float | None, cores: float) -> bool:
    """Returns whether the limit read back is the one requested, but for the kernel's smallest quota."""
    quota, period = quota_of(cores)
    return found is not None and found <= quota / period * (1 + TOLERANCE_SHARE)


def _read_folder(folder: Path) -> CoreLimits:
    if "cpu" in _words(folder / "cgroup.controllers"):
        return CgroupLimitsV2(folder)
    if (folder / "cpu.cfs_quota_us").exists() or (folder / "cpu.cfs_period_us").exists():
        return CgroupLimitsV1(folder)
    raise NoCoreLimits(
        f"{folder} is no cgroup with the cpu controller; delegate one to this user: with systemd, Delegate=cpu memory "
        "and DelegateSubgroup=agent in the agent's unit, and --cgroup the unit's folder under /sys/fs/cgroup"
    )


def _try_out(limits: CoreLimits) -> CoreLimits:
    """Tries to make a group with a limit, and removes it again."""
    group = limits.parent / "gpuwright-try" / "try"
    try:
        group.mkdir(parents=True, exist_ok=True)
        limits.set(group, 1.0, 1.0)
        found = limits.cores(group)
    except OSError as error:
        raise NoCoreLimits(
            f"no limit of CPU time can be set under {limits.parent} ({error.strerror or error}); run the agent as "
            "root, or give it a delegated cgroup with --cgroup (systemd: Delegate=cpu memory, DelegateSubgroup=agent)"
        ) from error
    finally:
        for path in (group, group.parent):
            remove(path)
    if not is_in_force(found, 1.0):
        raise NoCoreLimits(f"{limits.parent}: a limit was set, but is not in force when read back")
    return limits


def remove(group: Path) -> None:
    """Removes a group that is empty; the kernel refuses to remove others."""
    try:
        group.rmdir()
    except OSError:
        return


def _enable(group: Path) -> None:
    """Passes the controllers on to the groups below."""
    there, on = _words(group / "cgroup.controllers"), _words(group / "cgroup.subtree_control")
    for name in ("cpu", "memory"):
        if name in there and name not in on:
            _write(group / "cgroup.subtree_control", f"+{name}")


def _write(file: Path, text: str) -> None:
    file.write_text(text, encoding="ascii")


def _words(file: Path) -> list[str]:
    return proc.read(str(file)).decode(errors="replace").split()


def _ratio(quota: str, period: str) -> float | None:
    try:
        return int(quota) / int(period) if int(quota) > 0 else None
    except (ValueError, ZeroDivisionError):
        return None  # `max`: no limit


def _mounts(mountinfo: str) -> list[tuple[Path, str, str]]:
    """Returns where each file system is mounted, its kind, and its options."""
    found = []
    for line in proc.read(mountinfo).decode(errors="replace").splitlines():
        where, _, what = line.partition(" - ")
        fields, kind = where.split(), what.split()
        if len(fields) > 4 and len(kind) > 2:
            found.append((Path(fields[4]), kind[0], kind[2]))
    return found


def _own_group(controller: str) -> str:
    for line in proc.read("/proc/self/cgroup").decode(errors="replace").splitlines():
        _, controllers, group = line.split(":", 2)
        if controller in controllers.split(","):
            return group
    return "/"
