"""A cgroup for each copy that limits its CPU time, on a node that offers its CPU cores."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from agents.host.core_share import CORES, MEMORY_GIB
from agents.runtime.cgroups import SUFFIX, Cgroups, members
from agents.runtime.core_limits import CoreLimits, is_in_force, remove


class CoreGroups(Cgroups):
    """The limited groups of one folder's copies. A copy without a limit does not start."""

    def __init__(self, folder: Path, limits: CoreLimits) -> None:
        super().__init__(folder)
        self._limits = limits
        self.root = limits.parent / self.name
        if limits.tracks:
            self.base = self.root

    def make(self, copy: str, limits: Mapping[str, str] | None = None) -> tuple[str, str]:
        """Makes the copy's group and sets its limit; raises OSError or ValueError if it is not in force."""
        if limits is None or CORES not in limits:
            raise ValueError("no share of the cores is named, so nothing would limit it")
        cores, memory_gib = float(limits[CORES]), float(limits.get(MEMORY_GIB, "0"))
        tracked, _ = super().make(copy)
        group = self.root / self.folder_of(copy)
        group.mkdir(parents=True, exist_ok=True)
        self._limits.set(group, cores, memory_gib)
        found = self._limits.cores(group)
        if not is_in_force(found, cores):
            raise OSError(f"{group}: {cores:g} cores were requested, but the limit read back is {found}")
        return ("" if self._limits.tracks else tracked), str(group)

    def limiting_group(self, copy: str) -> str:
        return "" if self._limits.tracks else str(self.root / self.folder_of(copy))

    def limited(self) -> frozenset[int]:
        """Returns the processes whose CPU time is limited, by what the kernel says."""
        return frozenset(pid for group in self._groups() if self._limits.cores(group) for pid in members(group))

    def tidy(self) -> None:
        super().tidy()
        for group in self._groups():
            if group.name not in self.awaited:
                remove(group)
        if not self.awaited:
            remove(self.root)

    def _groups(self) -> Iterator[Path]:
        return self.root.glob(f"*{SUFFIX}")
