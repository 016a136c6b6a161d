"""The node's CPU cores as one device of the Device interface. They have no settings, and report memory only."""

from __future__ import annotations

import os
from pathlib import Path
from uuid import NAMESPACE_URL, uuid5

from agents.runtime import proc
from agents.runtime.core_groups import CoreGroups
from agents.seams.device import Ability, Applied, DeviceError, GpuDevice, GpuProcess, GpuReading, Trouble, XidEvent

KIB_PER_GIB = 2**20


class CoresDevice:
    """A Device of one unit: `cores` CPU cores of this machine."""

    def __init__(self, groups: CoreGroups, cores: int, folder: Path) -> None:
        if not 1 <= cores <= usable_cores():
            raise ValueError(f"--cores {cores}: this process may use 1 to {usable_cores()} cores")
        self._groups = groups
        self._gpu = GpuDevice(
            index=0,
            uuid=cores_uuid(folder),
            name=f"CPU, {cores} cores",
            pci="",
            memory_gib=memory_kib("MemTotal") / KIB_PER_GIB,
            sm_count=cores,
            clocks_mhz=(),
            power_min_w=0.0,
            power_max_w=0.0,
            power_default_w=0.0,
            abilities=frozenset({Ability.MPS}),
        )

    def gpus(self) -> tuple[GpuDevice, ...]:
        return (self._gpu,)

    def read(self, uuid: str) -> GpuReading:
        self._must_be_ours(uuid)
        used_kib = memory_kib("MemTotal") - memory_kib("MemAvailable")
        return GpuReading(memory_used_gib=max(0, used_kib) / KIB_PER_GIB)

    def processes(self, uuid: str) -> tuple[GpuProcess, ...]:
        """Returns the limited processes, each with the most memory that it has held."""
        self._must_be_ours(uuid)
        return tuple(GpuProcess(pid, _peak_gib(pid)) for pid in sorted(self._groups.limited()))

    def lock_clock(self, uuid: str, mhz: int | None) -> Applied:
        raise _not_supported(uuid, "the clock of CPU cores is not set")

    def cap_power(self, uuid: str, watts: float | None) -> Applied:
        raise _not_supported(uuid, "the power of CPU cores is not limited")

    def exclusive(self, uuid: str, wanted: bool) -> Applied:
        raise _not_supported(uuid, "CPU cores have no compute mode")

    def events(self, seconds: float) -> tuple[XidEvent, ...]:
        return ()

    def restore(self) -> None:
        """Does nothing, since nothing was changed."""

    def close(self) -> None:
        """Does nothing, since nothing is held open."""

    def _must_be_ours(self, uuid: str) -> None:
        if uuid != self._gpu.uuid:
            raise DeviceError(Trouble.LOST, uuid, "no such device")


def usable_cores() -> int:
    """Returns the cores that this process may run on."""
    return len(os.sched_getaffinity(0))


def cores_uuid(folder: Path) -> str:
    """Returns the name of this node's cores, which stays the same for one state folder."""
    return f"CPU-{uuid5(NAMESPACE_URL, f'{os.uname().nodename}{folder.resolve()}')}"


def memory_kib(name: str) -> int:
    """Returns a line of /proc/meminfo."""
    for line in proc.read("/proc/meminfo").decode(errors="replace").splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1])
    return 0


def _peak_gib(pid: int) -> float | None:
    for line in proc.read(f"/proc/{pid}/status").decode(errors="replace").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / KIB_PER_GIB
    return None  # it has just ended


def _not_supported(uuid: str, what: str) -> DeviceError:
    return DeviceError(Trouble.NOT_SUPPORTED, uuid, what)
