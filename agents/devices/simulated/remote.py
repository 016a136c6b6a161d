"""An agent's side of a simulated driver in another process: its device, its MPS and its fault switches."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from agents.devices.simulated.connections import LOCK, DriverConnections
from agents.devices.simulated.truth import GpuTruth
from agents.seams.device import (
    Applied,
    Device,
    DeviceError,
    GpuDevice,
    GpuProcess,
    GpuReading,
    Mps,
    MpsState,
    Trouble,
    XidEvent,
)

POLL_SECONDS = 0.1
START_SECONDS = 30.0

T = TypeVar("T")


class RemoteDevice:
    """A Device whose machine is in the driver's process, which also keeps and restores what was changed."""

    def __init__(self, line: DriverConnections) -> None:
        self._line = line
        self._event_count = 0
        with contextlib.suppress(DeviceError):
            self._event_count, _ = line.ask("machine", "events_since", 0)

    def gpus(self) -> tuple[GpuDevice, ...]:
        return self._ask(tuple[GpuDevice, ...], "gpus")

    def read(self, uuid: str) -> GpuReading:
        return self._ask(GpuReading, "read", uuid)

    def processes(self, uuid: str) -> tuple[GpuProcess, ...]:
        return self._ask(tuple[GpuProcess, ...], "processes", uuid)

    def lock_clock(self, uuid: str, mhz: int | None) -> Applied:
        return self._ask(Applied, "lock_clock", uuid, mhz)

    def cap_power(self, uuid: str, watts: float | None) -> Applied:
        return self._ask(Applied, "cap_power", uuid, watts)

    def exclusive(self, uuid: str, wanted: bool) -> Applied:
        return self._ask(Applied, "exclusive", uuid, wanted)

    def events(self, seconds: float) -> tuple[XidEvent, ...]:
        until = time.monotonic() + seconds
        while True:
            count, events = self._line.ask("machine", "events_since", self._event_count)
            if count < self._event_count:  # another driver, which counts from 1
                count, events = self._line.ask("machine", "events_since", 0)
            self._event_count = count
            remaining = until - time.monotonic()
            if events or remaining <= 0:
                return msgspec.convert(events, tuple[XidEvent, ...])
            time.sleep(min(POLL_SECONDS, remaining))

    def restore(self) -> None:
        self._line.ask("device", "restore")

    def close(self) -> None:
        self._line.close()

    def _ask(self, kind: type[T], call: str, *arguments: Any) -> T:
        return msgspec.convert(self._line.ask("device", call, *arguments), kind)


class RemoteMps:
    """An Mps whose daemons are in the driver's process."""

    def __init__(self, line: DriverConnections) -> None:
        self._line = line

    def start(self, uuid: str) -> None:
        self._line.ask("mps", "start", uuid)

    def stop(self, uuid: str) -> None:
        self._line.ask("mps", "stop", uuid)

    def state(self, uuid: str) -> MpsState:
        return MpsState(self._line.ask("mps", "state", uuid))

    def clients(self, uuid: str) -> frozenset[int]:
        return frozenset(self._line.ask("mps", "clients", uuid))

    def terminate(self, uuid: str, pid: int) -> bool:
        return bool(self._line.ask("mps", "terminate", uuid, pid))

    def environment(self, uuid: str, sm_percent: float, memory_gib: float) -> dict[str, str]:
        return dict(self._line.ask("mps", "environment", uuid, sm_percent, memory_gib))

    def folders(self, uuid: str) -> tuple[Path, ...]:
        return tuple(Path(folder) for folder in self._line.ask("mps", "folders", uuid))


class Switches:
    """The fault switches of a driver: the methods of `Machine`, by name."""

    def __init__(self, folder: Path) -> None:
        self._line = DriverConnections(folder)

    def turn(self, switch: str, *arguments: Any) -> Any:
        """Turns a switch, as in `turn("lose", uuid)`; `driver.SWITCHES` lists them."""
        return self._line.ask("machine", switch, *arguments)

    def truth(self, uuid: str) -> GpuTruth:
        return msgspec.convert(self.turn("truth", uuid), GpuTruth)

    def quit(self) -> None:
        """Ends the driver, and with it its GPUs."""
        self._line.ask("driver", "quit")
        self.close()

    def close(self) -> None:
        self._line.close()


def connect(folder: Path) -> tuple[Device, Mps]:
    """Returns the GPUs of the driver that serves this folder."""
    line = DriverConnections(folder)
    return RemoteDevice(line), RemoteMps(line)


def ensure_driver(folder: Path, kinds: Sequence[str]) -> None:
    """Starts a driver for this folder unless one is running. It outlives this process."""
    line = DriverConnections(folder)
    _started[:] = [started for started in _started if started.poll() is None]
    try:
        if _answers(line):
            return
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        folder = folder.resolve()
        spec = folder / "spec.json"
        spec.write_text(json.dumps({"gpus": list(kinds)}))
        with (folder / "driver.log").open("ab") as log:
            started = subprocess.Popen(
                [sys.executable, "-I", "-m", "agents.devices.simulated.driver", str(folder), "--spec", str(spec)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                cwd="/",
            )
        until = time.monotonic() + START_SECONDS
        while not _answers(line):
            if started.poll() not in (None, 3) or time.monotonic() > until:  # 3: another driver was faster
                raise DeviceError(
                    Trouble.NO_DRIVER, "", f"the simulated driver does not start: see {folder}/driver.log"
                )
            time.sleep(0.02)
        if int((folder / LOCK).read_text() or 0) == started.pid:
            _started.append(started)
        else:  # another one was faster; ours would wait for its place
            started.kill()
            started.wait()
    finally:
        line.close()


_started: list[subprocess.Popen[bytes]] = []  # kept to reap those that end


def _answers(line: DriverConnections) -> bool:
    try:
        line.ask("device", "gpus")
    except DeviceError as error:
        return error.trouble is not Trouble.NO_DRIVER or "no NVIDIA driver" in error.what
    return True
