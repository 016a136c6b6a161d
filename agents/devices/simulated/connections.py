"""Asks a simulated driver: one JSON line each way, within a deadline."""

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
DEADLINE_SECONDS = 2.5  # a little more than the driver's own, so that its error arrives first
MOST_IDLE_CONNECTIONS = 4
LONGEST_ANSWER_BYTES = 1 << 24


class DriverConnections:
    """Connections to one driver, used from any thread and reused."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._idle: list[socket.socket] = []
        self._lock = threading.Lock()

    def ask(self, to: str, call: str, *arguments: Any) -> Any:
        """Raises DeviceError, or CudaRefusal where a process was refused."""
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
        """Asks on a connection of its own; one that died meanwhile, as in a restart, is replaced."""
        with self._lock:
            idle = self._idle.pop() if self._idle else None
        if idle is not None:
            try:
                return self._send_over(idle, request)
            except TimeoutError:
                raise
            except OSError:
                pass  # any call may safely be repeated
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.settimeout(DEADLINE_SECONDS)
            connect(connection, self.folder / CONTROL)
        except BaseException:
            connection.close()
            raise
        return self._send_over(connection, request)

    def _send_over(self, connection: socket.socket, request: bytes) -> bytes:
        try:
            connection.sendall(request)
            answer = read_line(connection, LONGEST_ANSWER_BYTES, time.monotonic() + DEADLINE_SECONDS)
        except BaseException:
            connection.close()
            raise
        with self._lock:
            if len(self._idle) < MOST_IDLE_CONNECTIONS:
                self._idle.append(connection)
                return answer
        connection.close()
        return answer
