"""The agent's side of the root helper: one short connection a change."""

from __future__ import annotations

import socket
import time
from contextlib import suppress
from pathlib import Path

import msgspec

from agents.device import DeviceError, Trouble
from agents.privileged.wire import (
    MODES,
    Change,
    Hello,
    LockClock,
    Reply,
    Request,
    ResetClock,
    SetComputeMode,
    SetPower,
    encoder,
    replies,
)

MOST_REPLY_BYTES = 4096


class Privileged:
    """Asks the root helper. Every call may raise DeviceError; none takes longer than its deadline."""

    def __init__(self, path: Path, seconds: float = 5.0) -> None:
        self._path = path
        self._seconds = seconds

    def hello(self) -> Reply:
        """Who answers: its version and, in `started`, which life of it."""
        return self._ask("", Hello())

    def lock_clock(self, uuid: str, mhz: int) -> None:
        self._change(LockClock(uuid, mhz))

    def reset_clock(self, uuid: str) -> None:
        self._change(ResetClock(uuid))

    def set_power_mw(self, uuid: str, milliwatts: int) -> None:
        self._change(SetPower(uuid, milliwatts))

    def set_compute_mode(self, uuid: str, mode: int) -> None:
        if mode not in MODES:
            raise DeviceError(Trouble.OUT_OF_RANGE, uuid, f"compute mode {mode} is none of {sorted(MODES)}")
        self._change(SetComputeMode(uuid, MODES[mode]))

    def _change(self, change: Change) -> Reply:
        return self._ask(change.uuid, change)

    def _ask(self, uuid: str, request: Request) -> Reply:
        try:
            reply = replies.decode(self._exchange(encoder.encode(request) + b"\n"))
        except TimeoutError as error:
            raise DeviceError(Trouble.TIMEOUT, uuid, f"the root helper is silent at {self._path}") from error
        except OSError as error:
            text = f"no root helper at {self._path}: {error.strerror}"
            raise DeviceError(Trouble.NO_PERMISSION, uuid, text) from error
        except msgspec.MsgspecError as error:
            raise DeviceError(Trouble.GARBLED, uuid, f"the root helper's answer is none: {error}") from error
        if not reply.ok:
            known = reply.trouble in Trouble.__members__.values()
            raise DeviceError(Trouble(reply.trouble) if known else Trouble.UNKNOWN, uuid, reply.message)
        return reply

    def _exchange(self, line: bytes) -> bytes:
        """What is answered. In a flood it may hang up before it has heard us: that is no answer, and asked again."""
        deadline = time.monotonic() + self._seconds
        while True:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC) as connection:
                connection.settimeout(self._seconds)
                said = b""
                with suppress(BlockingIOError, BrokenPipeError, ConnectionResetError):
                    connection.connect(str(self._path))  # at once, or BlockingIOError: the queue is full
                    said = _spoken(connection, line)
            if said:
                return said
            if time.monotonic() >= deadline:
                raise TimeoutError
            time.sleep(0.02)


def _spoken(connection: socket.socket, line: bytes) -> bytes:
    with suppress(BrokenPipeError, ConnectionResetError):  # refused before it was heard; the answer is there
        connection.sendall(line)
    said = b""
    while len(said) <= MOST_REPLY_BYTES and not said.endswith(b"\n"):
        more = connection.recv(MOST_REPLY_BYTES)
        if not more:
            break
        said += more
    return said
