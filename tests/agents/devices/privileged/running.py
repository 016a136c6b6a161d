"""A running root helper, and questions to it and to its devices."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from agents.devices.privileged.client import Privileged
from agents.seams.device import DeviceError
from tests.agents.devices.privileged.file_devices import AS_BOUGHT, GPU, OTHER
from tests.support.patience import patience, until

ROOT = Path(__file__).parents[4]


class Helper:
    """One process at a time, over the same devices and the same folder."""

    def __init__(self, where: Path, uid: int | None = None, gid: int | None = None, under: Sequence[str] = ()) -> None:
        self.where = where
        self._under = under
        self.socket = where / "run" / "socket"
        self.client = Privileged(self.socket, seconds=30, renew_seconds=0)
        self._who = [str(number) if number is not None else "-" for number in (uid, gid)]
        self._process: subprocess.Popen[bytes] | None = None
        (where / "board.json").write_text(json.dumps({GPU: AS_BOUGHT, OTHER: AS_BOUGHT}))

    def start(self) -> None:
        words = ["-m", "tests.agents.devices.privileged.file_devices", str(self.where), *self._who]
        with (self.where / "log").open("ab") as log:
            self._process = subprocess.Popen([*self._under, sys.executable, *words], cwd=ROOT, stderr=log)
        until(self.answers, f"no hello: {self.log()}")

    def answers(self) -> bool:
        assert self._process and self._process.poll() is None, self.log()
        try:
            return self.client.hello().ok
        except DeviceError:
            return False

    def stop(self, how: signal.Signals = signal.SIGTERM) -> int:
        assert self._process
        with suppress(ProcessLookupError):
            self._process.send_signal(how)
        return self._process.wait(patience())

    def log(self) -> str:
        path = self.where / "log"
        return path.read_text() if path.exists() else ""

    def device(self, uuid: str = GPU) -> dict[str, Any]:
        device: dict[str, Any] = json.loads((self.where / "board.json").read_text())[uuid]
        return {name: device[name] for name in AS_BOUGHT}

    def fault(self, **faults: Any) -> None:
        """From now on the first device behaves so."""
        self.preset(faults=faults)

    def preset(self, **values: Any) -> None:
        """The first device as somebody else has set it."""
        devices = json.loads((self.where / "board.json").read_text())
        devices[GPU] |= values
        (self.where / "board.json").write_text(json.dumps(devices))

    def without(self, uuid: str) -> None:
        """A device falls off the bus."""
        devices = json.loads((self.where / "board.json").read_text())
        del devices[uuid]
        (self.where / "board.json").write_text(json.dumps(devices))

    def writes(self) -> list[str]:
        """All writes to all devices, in order."""
        path = self.where / "board.history"
        return path.read_text().splitlines() if path.exists() else []

    def open_files(self) -> int:
        assert self._process
        return len(list(Path(f"/proc/{self._process.pid}/fd").iterdir()))

    def ask_raw(self, sent: bytes) -> bytes:
        """Its answer to these bytes, until it hangs up."""
        with self.connected() as connection:
            with suppress(BrokenPipeError, ConnectionResetError):
                connection.sendall(sent)
            return received(connection)

    def connected(self) -> socket.socket:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.connect(str(self.socket))
        connection.settimeout(patience())
        return connection


def received(connection: socket.socket) -> bytes:
    """All that comes until the other side hangs up."""
    answer = b""
    with suppress(ConnectionResetError):
        while more := connection.recv(4096):
            answer += more
    return answer


@contextmanager
def running(where: Path, uid: int | None = None, gid: int | None = None, under: Sequence[str] = ()) -> Iterator[Helper]:
    """`under`: a program, with its words, that starts it."""
    helper = Helper(where, uid, gid, under)
    helper.start()
    try:
        yield helper
    finally:
        helper.stop(signal.SIGKILL)
