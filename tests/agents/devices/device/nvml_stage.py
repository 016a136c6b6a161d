"""The stage of the real bindings: NVML's stand-in below nvidia-ml-py, the fake control program below MpsControl."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal
from uuid import uuid4

from agents.devices.mps import MpsControl
from agents.devices.nvml.device import NvmlDevice
from agents.seams.device import Ability, Device, Mps
from tests.agents.devices.device.client import ProcessClient
from tests.agents.devices.device.stage import Made, Truth
from tests.support import fake_mps
from tests.support.nvml_stub import NvmlState
from tests.support.nvml_stub.state import NO_PERMISSION, UNKNOWN
from tests.support.patience import patience

GPUS = 3
SETTERS = (
    "nvmlDeviceSetGpuLockedClocks",
    "nvmlDeviceResetGpuLockedClocks",
    "nvmlDeviceSetPowerManagementLimit",
    "nvmlDeviceSetComputeMode",
)
READINGS = (
    "nvmlDeviceGetMemoryInfo",
    "nvmlDeviceGetPowerUsage",
    "nvmlDeviceGetTotalEnergyConsumption",
    "nvmlDeviceGetTemperature",
    "nvmlDeviceGetClockInfo",
)
KEYS = {
    Ability.READ_POWER: "power_mw",
    Ability.READ_ENERGY: "energy_mj",
    Ability.READ_ECC: "ecc_uncorrected",
    Ability.LOCK_CLOCKS: "clocks",
    Ability.CAP_POWER: "power_limit_mw",
    Ability.COMPUTE_MODE: "compute_mode",
}


class NvmlStage:
    """A Stage that acts on files and processes."""

    def __init__(self, folder: Path, pipes: Path) -> None:
        self.state = NvmlState(folder / "nvml", gpus=GPUS)
        for number in range(GPUS):  # daemons of one machine: each stage has its own GPUs
            self.state.set(number, "uuid", f"GPU-{uuid4()}")
        self._folder = folder
        self._pipes = pipes
        self._devices: list[NvmlDevice] = []
        self._clients: list[ProcessClient] = []
        self._outside: dict[int, tuple[str, subprocess.Popen[bytes]]] = {}

    def made(self) -> Made:
        return Made(*self.reopen(), self)

    def close(self) -> None:
        for number in range(GPUS):
            self.state.works(number)
        for device in self._devices:
            device.close()
        for pid in list(self._outside):
            self.vacate(pid)
        for pipe in [*self._pipes.iterdir(), *self._pipes.glob("other/*")]:
            fake_mps.kill(pipe)
        for client in self._clients:
            client.end()

    @property
    def uuids(self) -> tuple[str, ...]:
        return tuple(str(self.state.get(number, "uuid")) for number in range(GPUS))

    def settled(self, holds: Callable[[], bool]) -> bool:
        began = time.monotonic()
        while not holds():
            if time.monotonic() - began > patience():
                return False
            time.sleep(0.01)
        return True

    def lose(self, uuid: str) -> None:
        self.state.lose(self.state.number(uuid))

    def give_back(self, uuid: str) -> None:
        self.state.give_back(self.state.number(uuid))

    def xid(self, uuid: str, number: int) -> None:
        self.state.xid(self.state.number(uuid), number)

    def reads_fail(self, uuid: str, failing: bool) -> None:
        number = self.state.number(uuid)
        self.state.works(number)
        if failing:
            self.state.fails(number, READINGS, UNKNOWN)

    def setters(self, uuid: str, how: Literal["work", "ignored", "no_permission"]) -> None:
        number = self.state.number(uuid)
        self.state.works(number)
        if how == "no_permission":
            self.state.fails(number, SETTERS, NO_PERMISSION)
        elif how == "ignored":
            for setter in SETTERS:
                self.state.ignores(number, setter)

    def unsupported(self, uuid: str, ability: Ability) -> None:
        self.state.drop(self.state.number(uuid), KEYS[ability])

    def reload_driver(self) -> None:
        for number in range(GPUS):
            self.state.set(number, "energy_mj", 0)
            self.state.drop(number, "locked_min_mhz")
            self.state.drop(number, "locked_max_mhz")

    def work_for(self, seconds: float) -> None:
        for number in range(GPUS):
            used = round(self._number(number, "power_mw") * seconds)
            self.state.set(number, "energy_mj", self._number(number, "energy_mj") + used)

    def preset(self, uuid: str, cap_w: float, exclusive: bool) -> None:
        number = self.state.number(uuid)
        self.state.set(number, "power_limit_mw", round(cap_w * 1000))
        self.state.set(number, "compute_mode", 3 if exclusive else 0)

    def truth(self, uuid: str) -> Truth:
        number = self.state.number(uuid)
        locked = self.state.get(number, "locked_max_mhz")
        return Truth(
            locked_mhz=None if locked is None else int(locked),
            cap_w=self._number(number, "power_limit_mw") / 1000,
            exclusive=self._number(number, "compute_mode") == 3,
            energy_j=self._number(number, "energy_mj") / 1000,
        )

    def writes(self) -> int:
        return len(self.state.history())

    def occupy(self, uuid: str, memory_gib: float) -> int:
        process = subprocess.Popen(["sleep", "infinity"])
        self._outside[process.pid] = (uuid, process)
        self.state.process(self.state.number(uuid), process.pid, memory_gib)
        return process.pid

    def vacate(self, pid: int) -> None:
        uuid, process = self._outside.pop(pid)
        process.kill()
        process.wait()
        self.state.ended(self.state.number(uuid), pid)

    def stale(self, uuid: str) -> int:
        process = subprocess.Popen(["true"])
        process.wait()
        self.state.process(self.state.number(uuid), process.pid, None)
        return process.pid

    def reopen(self) -> tuple[Device, Mps]:
        device = NvmlDevice(self._folder / "originals.json", settle_seconds=0.1, reopen_seconds=0.0)
        self._devices.append(device)
        return device, MpsControl(self._pipes, fake_mps.program(), deadline_seconds=2.0)

    def client(self, environment: Mapping[str, str], memory_gib: float = 0.5) -> ProcessClient:
        client = ProcessClient(environment, memory_gib)
        self._clients.append(client)
        return client

    def mps_dies(self, uuid: str) -> None:
        fake_mps.kill(self._pipes / uuid)

    def mps_of_another(self, uuid: str, there: bool) -> None:
        other = MpsControl(self._pipes / "other", fake_mps.program(), quit_seconds=0)
        (other.start if there else other.stop)(uuid)

    def mps_faults(self, uuid: str) -> None:
        fake_mps.switch(self._pipes / uuid, "fault")

    def mps_hangs(self, uuid: str, hanging: bool) -> None:
        fake_mps.switch(self._pipes / uuid, "hang", "1" if hanging else None)

    def _number(self, number: int, key: str) -> int:
        return int(self.state.get(number, key) or 0)
