"""The root helper in a process of its own, over devices that live in a file."""

from __future__ import annotations

import json
import logging
import sys
import time
from pathlib import Path
from typing import Any

from agents.devices.privileged.root_devices import AllowedSettings
from agents.devices.privileged.server import serve
from agents.devices.privileged.setup import CannotServe, HelperSetup
from agents.seams.device import DeviceError, Trouble

GPU = "GPU-00000000-0000-0000-0000-000000000000"
OTHER = "GPU-11111111-1111-1111-1111-111111111111"
AS_BOUGHT = {"clock": None, "power": 250_000, "mode": 0}


class FileBoard:
    """Devices described by a JSON file; every write is appended to a history next to it."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def allowed(self, uuid: str) -> AllowedSettings:
        self._device(uuid)
        return AllowedSettings(frozenset({600, 900, 1200}), 100_000, 300_000)

    def power_mw(self, uuid: str) -> int:
        return int(self._device(uuid)["power"])

    def compute_mode(self, uuid: str) -> int:
        return int(self._device(uuid)["mode"])

    def lock_clock(self, uuid: str, mhz: int) -> None:
        self._set(uuid, "clock", mhz)

    def reset_clock(self, uuid: str) -> None:
        self._set(uuid, "clock", None)

    def set_power_mw(self, uuid: str, milliwatts: int) -> None:
        self._set(uuid, "power", milliwatts)

    def set_compute_mode(self, uuid: str, mode: int) -> None:
        self._set(uuid, "mode", mode)

    def _device(self, uuid: str) -> dict[str, Any]:
        device: dict[str, Any] | None = json.loads(self._path.read_text()).get(uuid)
        if device is None:
            raise DeviceError(Trouble.LOST, uuid, "there is no such device")
        return device

    def _set(self, uuid: str, what: str, value: int | None) -> None:
        faults = self._device(uuid).get("faults", {})
        devices = json.loads(self._path.read_text())
        with self._path.with_suffix(".history").open("a") as history:
            history.write(f"{uuid} {what} {value}\n")
        if "deaf" not in faults:
            devices[uuid][what] = value
            fresh = self._path.with_suffix(".fresh")
            fresh.write_text(json.dumps(devices))
            fresh.replace(self._path)
        time.sleep(faults.get("sleep_seconds", 0))  # it is set, and the call has not returned


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    where = Path(sys.argv[1])
    uid, gid = (None if word == "-" else int(word) for word in sys.argv[2:4])
    try:
        serve(HelperSetup(where / "run" / "socket", where / "state", uid, gid), FileBoard(where / "board.json"))
    except CannotServe as error:
        sys.exit(str(error))
