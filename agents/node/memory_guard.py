"""Runs the memory guard on each GPU's readings, and keeps which jobs it has stopped.

What a job in host memory still holds of its GPU counts as a stranger's.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from agents.contract.assignments import Assignment
from agents.keeper.copies import NodeCopy, Stage
from agents.keeper.decide import HeldStart
from agents.keeper.room import HOLD_NOTHING
from agents.policy import memory
from agents.policy.memory import DeviceMemory, Guard, MemoryHolder, MemorySettings
from agents.runtime import Running
from agents.seams.device import GpuDevice, GpuProcess, GpuReading

WAITING_FOR_ROOM = ("no_room", "no_room_to_hand_over")


class MemoryGuard:
    """Guards each GPU's memory, about once a second."""

    def __init__(self, unsaved_seconds: Callable[[str, float], float]) -> None:
        self._unsaved_seconds = unsaved_seconds
        self._settings = MemorySettings()
        self._guards: dict[str, Guard] = {}
        self._room: dict[str, float] = {}

    @property
    def away(self) -> frozenset[str]:
        """Jobs that made room for services and wait to return."""
        return frozenset(name for guard in self._guards.values() for name in guard.away)

    @property
    def room_gib(self) -> Mapping[str, float]:
        """The memory that our own processes may hold together, by GPU; the rest is headroom or used by others."""
        return self._room

    def look(
        self,
        gpu: GpuDevice,
        reading: GpuReading | None,
        processes: Collection[GpuProcess],
        pids: Callable[[Running], Collection[int]],
        copies: Collection[NodeCopy],
        held: Collection[HeldStart],
        assignment: Assignment,
        index: int,
        now: float,
    ) -> None:
        """Decides for one GPU which jobs make room and which return."""
        device = DeviceMemory(gpu.memory_gib, reading.memory_used_gib if reading else None)
        measured = {process.pid: process.memory_gib for process in processes}
        holders = [
            _holder(copy, measured, pids, self._unsaved_seconds(copy.id, now))
            for copy in copies
            if gpu.uuid in copy.devices and copy.stage not in HOLD_NOTHING
        ]
        on_gpu = {instance.id: instance for instance in assignment.instances if index in instance.all_gpus}
        waiting = {
            hold.instance for hold in held if hold.missing.reason in WAITING_FOR_ROOM and hold.missing.memory_gib
        }
        needed = sum(on_gpu[name].memory_gib for name in waiting if name in on_gpu and on_gpu[name].service)
        jobs = {name for name, instance in on_gpu.items() if instance.job}
        before = self._guards.get(gpu.uuid, Guard())
        self._guards[gpu.uuid], _ = memory.guard(before, device, holders, needed, jobs, now, self._settings)
        strangers = memory.strangers_gib(device, holders)
        self._room[gpu.uuid] = gpu.memory_gib - memory.headroom_gib(device, self._settings) - strangers


def _holder(
    copy: NodeCopy,
    measured: Mapping[int, float | None],
    pids: Callable[[Running], Collection[int]],
    unsaved_seconds: float,
) -> MemoryHolder:
    wanted = copy.wanted
    return MemoryHolder(
        instance=copy.instance,
        limit_gib=wanted.memory_gib,
        used_gib=_sum_used_gib(measured, pids(copy.running)) if copy.running else 0.0,
        may_stop=bool(wanted.job) and wanted.preemptible,
        priority=wanted.priority,
        unsaved_seconds=unsaved_seconds,
        leaving=copy.stage in (Stage.SWAPPING, Stage.DRAINING, Stage.ENDING),
    )


def _sum_used_gib(measured: Mapping[int, float | None], pids: Collection[int]) -> float | None:
    """Returns what the copy's processes hold together; None if the device does not report one of them."""
    held = [measured[pid] for pid in pids if pid in measured]
    known = [gib for gib in held if gib is not None]
    return sum(known) if len(known) == len(held) else None
