"""The stage of a simulated driver: a process of its own, real sockets, real clients."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from agents.devices.simulated.machine import Setters
from agents.devices.simulated.remote import Switches, connect, ensure_driver
from agents.seams.device import Ability, Device, Mps
from tests.agents.devices.device.client import ProcessClient
from tests.agents.devices.device.stage import Made, Truth
from tests.support.patience import patience

KINDS = ("v100-16gb", "v100-16gb", "v100-16gb")


class OverDriver:
    """A Stage over a driver that serves a folder; `close` ends it and all that it started."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        ensure_driver(folder, KINDS)
        self.switches = Switches(folder)
        self._connected: list[Device] = []
        self._uuids = tuple(gpu.uuid for gpu in self.reopen()[0].gpus())
        self._outside: dict[int, subprocess.Popen[bytes]] = {}
        self._clients: list[ProcessClient] = []

    def made(self) -> Made:
        return Made(*self.reopen(), self)

    def close(self) -> None:
        for client in self._clients:
            client.end()
        for pid in list(self._outside):
            self.vacate(pid)
        for device in self._connected:
            device.close()
        self.switches.quit()

    @property
    def uuids(self) -> tuple[str, ...]:
        return self._uuids

    def settled(self, holds: Callable[[], bool]) -> bool:
        began = time.monotonic()
        while not holds():
            if time.monotonic() - began > patience():
                return False
            time.sleep(0.02)
        return True

    def lose(self, uuid: str) -> None:
        self.switches.turn("lose", uuid)

    def give_back(self, uuid: str) -> None:
        self.switches.turn("give_back", uuid)

    def xid(self, uuid: str, number: int) -> None:
        self.switches.turn("xid", uuid, number)

    def reads_fail(self, uuid: str, failing: bool) -> None:
        self.switches.turn("reads_fail", uuid, failing)

    def setters(self, uuid: str, how: Setters) -> None:
        self.switches.turn("setters", uuid, how)

    def unsupported(self, uuid: str, ability: Ability) -> None:
        self.switches.turn("unsupported", uuid, ability)

    def reload_driver(self) -> None:
        self.switches.turn("reload_driver")

    def work_for(self, seconds: float) -> None:
        time.sleep(min(seconds, 0.2))

    def preset(self, uuid: str, cap_w: float, exclusive: bool) -> None:
        self.switches.turn("preset", uuid, cap_w, exclusive)

    def truth(self, uuid: str) -> Truth:
        truth = self.switches.truth(uuid)
        return Truth(truth.settings.locked_mhz, truth.settings.cap_w, truth.settings.exclusive, truth.energy_j)

    def writes(self) -> int:
        return int(self.switches.turn("how_many_writes"))

    def occupy(self, uuid: str, memory_gib: float) -> int:
        process = subprocess.Popen(["sleep", "600"])
        self._outside[process.pid] = process
        self.switches.turn("open_outside", uuid, process.pid, memory_gib)
        return process.pid

    def vacate(self, pid: int) -> None:
        process = self._outside.pop(pid)
        process.kill()
        process.wait(patience())
        self.switches.turn("vacate", pid)

    def stale(self, uuid: str) -> int:
        process = subprocess.Popen(["true"])
        process.wait(patience())
        self.switches.turn("stale_pid", uuid, process.pid)
        return process.pid

    def reopen(self) -> tuple[Device, Mps]:
        device, mps = connect(self.folder)
        self._connected.append(device)
        return device, mps

    def client(self, environment: Mapping[str, str], memory_gib: float = 0.5) -> ProcessClient:
        client = ProcessClient(environment, memory_gib)
        self._clients.append(client)
        return client

    def mps_dies(self, uuid: str) -> None:
        self.switches.turn("mps_dies", uuid)

    def mps_of_another(self, uuid: str, there: bool) -> None:
        self.switches.turn("mps_of_another", uuid, there)

    def mps_faults(self, uuid: str) -> None:
        self.switches.turn("mps_faults", uuid)

    def mps_hangs(self, uuid: str, hanging: bool) -> None:
        self.switches.turn("mps_hangs", uuid, hanging)
