"""The MPS daemons of a simulated machine, one per GPU, as the agent sees them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from agents.devices.mps.limits import client_environment
from agents.devices.simulated.daemon import SimulatedDaemon
from agents.devices.simulated.device import Wait, no_time_passes, spend
from agents.devices.simulated.machine import Machine
from agents.seams.device import Ability, DeviceError, MpsState, Trouble


class SimulatedMps:
    """An Mps over a machine; pipe directories lie under `root`, and need not exist."""

    def __init__(self, machine: Machine, clock: Callable[[], float], root: Path, wait: Wait = no_time_passes) -> None:
        self._machine = machine
        self._clock = clock
        self._root = root
        self._wait = wait

    def start(self, uuid: str) -> None:
        daemon = self._daemon(uuid)
        if self._machine.slots[uuid].lost:
            raise DeviceError(Trouble.LOST, uuid, "the device has fallen off the bus")
        if daemon.is_foreign:
            raise DeviceError(Trouble.FOREIGN, uuid, "MPS runs that this agent did not start")
        if not daemon.up and not daemon.startable:
            raise DeviceError(Trouble.DOWN, uuid, "the MPS daemon does not start")
        daemon.start()

    def stop(self, uuid: str) -> None:
        self._daemon(uuid).stop()

    def state(self, uuid: str) -> MpsState:
        return self._daemon(uuid).state

    def clients(self, uuid: str) -> frozenset[int]:
        return frozenset(context.pid for context in self._running(uuid).clients())

    def terminate(self, uuid: str, pid: int) -> bool:
        return self._running(uuid).terminate(pid)

    def environment(self, uuid: str, sm_percent: float, memory_gib: float) -> dict[str, str]:
        if uuid not in self._machine.slots:
            raise DeviceError(Trouble.LOST, uuid, "no such device")
        return client_environment(uuid, self._root / uuid, sm_percent, memory_gib)

    def folders(self, uuid: str) -> tuple[Path, ...]:
        return (self._root / uuid,)

    def _daemon(self, uuid: str) -> SimulatedDaemon:
        if not self._machine.driver_loaded:
            raise DeviceError(Trouble.NO_DRIVER, "", "no NVIDIA driver is loaded")
        try:
            slot = self._machine.at(uuid, self._clock())
        except KeyError:
            raise DeviceError(Trouble.LOST, uuid, "no such device") from None
        spend(slot.daemon.slow_seconds, uuid, self._wait)
        if Ability.MPS in slot.unsupported:
            raise DeviceError(Trouble.NOT_SUPPORTED, uuid, "the device does not support MPS")
        return slot.daemon

    def _running(self, uuid: str) -> SimulatedDaemon:
        daemon = self._daemon(uuid)
        if not daemon.up:
            raise DeviceError(Trouble.DOWN, uuid, "no MPS daemon is running")
        return daemon
