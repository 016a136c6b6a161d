"""Questions to a simulated driver, and its answers: one JSON line each, within a deadline."""

from __future__ import annotations

import json
import socket
import threading
import time
from pathlib import Path
from typing import Any

import msgspec

from agents.devices.simulated.refusals import CudaRefusal
from agents.host.wire import connect, read_line
from agents.seams.device import DeviceError, Trouble

CONTROL = "driver.sock"
LOCK = "driver.lock"
DEADLINE_SECONDS = 2.5  # a little more than the driver's own, so that its word is heard
MOST_IDLE = 4
LONGEST_ANSWER_BYTES = 1 << 24


class DriverConnections:
    """Questions to one driver, from any thread; connections are kept and used again."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._idle: list[socket.socket] = []
        self._lock = threading.Lock()

    def ask(self, to: str, call: str, *arguments: Any) -> Any:
        """Raises DeviceError, or CudaRefusal where a process was not let in."""
        uuid = arguments[0] if arguments and isinstance(arguments[0], str) else ""
        request = json.dumps({"to": to, "call": call, "arguments": arguments}).encode() + b"\n"
        try:
            answer = msgspec.json.decode(self._exchange(request))
        except TimeoutError:
            raise DeviceError(Trouble.TIMEOUT, uuid, f"{call}: no answer within {DEADLINE_SECONDS:g} s") from None
        except OSError as error:
            raise DeviceError(Trouble.NO_DRIVER, uuid, f"{self.folder / CONTROL}: {error}") from None
        except ValueError as error:
            raise DeviceError(Trouble.GARBLED, uuid, f"{call}: {error}") from None
        if "trouble" in answer:
            raise DeviceError(Trouble(answer["trouble"]), answer["uuid"], answer["what"])
        if "refused" in answer:
            raise CudaRefusal(answer["refused"], answer["what"])
        return answer["value"]

    def close(self) -> None:
        with self._lock:
            while self._idle:
                self._idle.pop().close()

    def _exchange(self, request: bytes) -> bytes:
        """One question on a connection of its own; one that has died meanwhile, as in a restart, is replaced."""
        with self._lock:
            kept = self._idle.pop() if self._idle else None
        if kept is not None:
            try:
                return self._over(kept, request)
            except TimeoutError:
                raise
            except OSError:
                pass  # whatever was asked: every call may be made twice
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.settimeout(DEADLINE_SECONDS)
            connect(connection, self.folder / CONTROL)
        except BaseException:
            connection.close()
            raise
        return self._over(connection, request)

    def _over(self, connection: socket.socket, request: bytes) -> bytes:
        try:
            connection.sendall(request)
            answer = read_line(connection, LONGEST_ANSWER_BYTES, time.monotonic() + DEADLINE_SECONDS)
        except BaseException:
            connection.close()
            raise
        with self._lock:
            if len(self._idle) < MOST_IDLE:
                self._idle.append(connection)
                return answer
        connection.close()
        return answer
