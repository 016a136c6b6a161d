"""The stage of a simulated machine inside the test's own process, in virtual time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from agents.devices.simulated.context import SimulatedContext
from agents.devices.simulated.device import SimulatedDevice
from agents.devices.simulated.limits import read_limits
from agents.devices.simulated.machine import Machine, Setters
from agents.devices.simulated.mps import SimulatedMps
from agents.devices.simulated.refusals import CudaRefusal
from agents.seams.device import Ability, Device, Mps
from tests.agents.devices.device.stage import Made, Truth

KINDS = ("v100-16gb", "v100-16gb", "v100-16gb")
ROOT = Path("/run/simulated/mps")
VIRTUAL_SECONDS = 180  # that it may take to settle


@dataclass(slots=True)
class ModelledClient:
    """A client that is a context in the model."""

    machine: Machine
    uuid: str
    pid: int
    context: SimulatedContext | None
    refused: int | None

    @property
    def sm_count(self) -> int | None:
        return self.context.sm_count if self.context is not None and self.context.under_mps else None

    def failed(self) -> bool:
        return self.context is not None and self.context.error is not None

    def hold(self, memory_gib: float) -> bool:
        assert self.context is not None
        try:
            self.machine.hold(self.uuid, self.context, memory_gib)
        except CudaRefusal:
            return False
        return True

    def end(self) -> None:
        if self.context is not None:
            self.machine.close(self.uuid, self.context)


class InProcess:
    """A Stage over a machine. The classes opened on it may be others: broken ones, to prove the suite."""

    def __init__(
        self,
        machine: Machine | None = None,
        device: type[SimulatedDevice] = SimulatedDevice,
        mps: type[SimulatedMps] = SimulatedMps,
    ) -> None:
        self.machine = machine or Machine(KINDS)
        self.now = 0.0
        self._device, self._mps = device, mps
        self._pids = iter(range(1000, 100_000))

    def made(self) -> Made:
        return Made(*self.reopen(), self)

    @property
    def uuids(self) -> tuple[str, ...]:
        return tuple(self.machine.slots)

    def settled(self, holds: Callable[[], bool]) -> bool:
        for _ in range(VIRTUAL_SECONDS):
            if holds():
                return True
            self.work_for(1.0)
        return False

    def lose(self, uuid: str) -> None:
        self.machine.lose(uuid)

    def give_back(self, uuid: str) -> None:
        self.machine.give_back(uuid)

    def xid(self, uuid: str, number: int) -> None:
        self.machine.xid(uuid, number)

    def reads_fail(self, uuid: str, failing: bool) -> None:
        self.machine.reads_fail(uuid, failing)

    def setters(self, uuid: str, how: Setters) -> None:
        self.machine.setters(uuid, how)

    def unsupported(self, uuid: str, ability: Ability) -> None:
        self.machine.unsupported(uuid, ability)

    def reload_driver(self) -> None:
        self.machine.reload_driver()

    def work_for(self, seconds: float) -> None:
        self.now += seconds
        self.machine.advance(self.now)

    def preset(self, uuid: str, cap_w: float, exclusive: bool) -> None:
        self.machine.preset(uuid, cap_w, exclusive)

    def truth(self, uuid: str) -> Truth:
        truth = self.machine.truth(uuid)
        there = truth.settings
        return Truth(there.locked_mhz, there.cap_w, there.exclusive, truth.energy_j)

    def writes(self) -> int:
        return self.machine.writes

    def occupy(self, uuid: str, memory_gib: float) -> int:
        pid = next(self._pids)
        self.machine.open_outside(uuid, pid, memory_gib)
        return pid

    def vacate(self, pid: int) -> None:
        self.machine.vacate(pid)

    def stale(self, uuid: str) -> int:
        pid = next(self._pids)
        self.machine.stale_pid(uuid, pid)
        return pid

    def reopen(self) -> tuple[Device, Mps]:
        return self._device(self.machine, lambda: self.now), self._mps(self.machine, lambda: self.now, ROOT)

    def client(self, environment: Mapping[str, str], memory_gib: float = 0.5) -> ModelledClient:
        limits = read_limits(environment)
        assert limits is not None
        assert limits.folder.parent == ROOT
        uuid, pid = limits.folder.name, next(self._pids)
        assert limits.uuid == uuid
        self.work_for(1.0)  # starting takes a while: a fault that kept clients out a moment ago may be over
        try:
            if not self.machine.slots[uuid].daemon.up:
                return ModelledClient(self.machine, uuid, pid, self.machine.open_outside(uuid, pid, memory_gib), None)
            context = self.machine.attach(uuid, pid, limits.sm_percent, limits.memory_gib, memory_gib)
            return ModelledClient(self.machine, uuid, pid, context, None)
        except CudaRefusal as refused:
            return ModelledClient(self.machine, uuid, pid, None, refused.code)

    def mps_dies(self, uuid: str) -> None:
        self.machine.mps_dies(uuid)

    def mps_of_another(self, uuid: str, there: bool) -> None:
        self.machine.mps_of_another(uuid, there)

    def mps_faults(self, uuid: str) -> None:
        self.machine.mps_faults(uuid)

    def mps_hangs(self, uuid: str, hanging: bool) -> None:
        self.machine.mps_hangs(uuid, hanging)
