"""Shares of CPU cores through the interface of MPS daemons: there is no daemon, the kernel keeps the limits."""

from __future__ import annotations

from pathlib import Path

from agents.host.core_share import CORES, MEMORY_GIB
from agents.runtime.core_groups import CoreGroups
from agents.seams.device import MpsState


class CoreShares:
    """An Mps whose clients are the processes in limited cgroups."""

    def __init__(self, groups: CoreGroups, cores: int) -> None:
        self._groups = groups
        self._cores = cores

    def start(self, uuid: str) -> None:
        """Does nothing: a group is made with its copy."""

    def stop(self, uuid: str) -> None:
        """Does nothing: a group ends with its copy."""

    def state(self, uuid: str) -> MpsState:
        return MpsState.ACTIVE if self._groups.limited() else MpsState.IDLE

    def clients(self, uuid: str) -> frozenset[int]:
        return self._groups.limited()

    def terminate(self, uuid: str, pid: int) -> bool:
        """Returns True: a process on CPU cores can be killed without harm to others."""
        return True

    def environment(self, uuid: str, sm_percent: float, memory_gib: float) -> dict[str, str]:
        return {CORES: f"{self._cores * sm_percent / 100:.6g}", MEMORY_GIB: f"{memory_gib:.6g}"}

    def folders(self, uuid: str) -> tuple[Path, ...]:
        return ()
