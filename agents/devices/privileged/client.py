"""The agent's side of the root helper: a Writer that applies its settings again after a restart of the helper."""

from __future__ import annotations

import logging
import socket
import threading
import time
from contextlib import suppress
from pathlib import Path

import msgspec

from agents.devices.privileged.wire import (
    MODES,
    DeviceChange,
    Hello,
    HelperReply,
    HelperRequest,
    LockClock,
    ResetClock,
    SetComputeMode,
    SetPower,
    encoder,
    replies,
)
from agents.seams.device import DeviceError, Trouble

RENEW_SECONDS = 5.0
HOPELESS = frozenset(
    {Trouble.LOST, Trouble.NOT_SUPPORTED, Trouble.OUT_OF_RANGE}
)  # the device was replaced by a different one

log = logging.getLogger(__name__)
MOST_REPLY_BYTES = 4096


class Privileged:
    """Asks the root helper. Every call may raise DeviceError; none takes longer than its deadline.

    A helper that stops restores all settings, even if it is only upgraded. So once something was set, a thread asks
    every `renew_seconds` whether the same helper process answers, and if not, applies the settings again; 0: never.
    """

    def __init__(self, path: Path, seconds: float = 5.0, renew_seconds: float = RENEW_SECONDS) -> None:
        self._path = path
        self._seconds = seconds
        self._renew_seconds = renew_seconds
        self._in_force: dict[tuple[str, type[DeviceChange]], DeviceChange] = {}
        self._started = ""  # identifies the helper process that applied them
        self._lock = (
            threading.Lock()
        )  # guards both fields and the exchange: an older change must not overtake a newer one
        self._thread: threading.Thread | None = None
        self._closing = threading.Event()

    def hello(self) -> HelperReply:
        """Returns the helper's version and, in `started`, the identity of its process."""
        return ask(self._path, self._seconds, "", Hello())

    def lock_clock(self, uuid: str, mhz: int) -> None:
        self._change(LockClock(uuid, mhz))

    def reset_clock(self, uuid: str) -> None:
        self._change(ResetClock(uuid))

    def set_power_mw(self, uuid: str, milliwatts: int) -> None:
        self._change(SetPower(uuid, milliwatts))

    def set_compute_mode(self, uuid: str, mode: int) -> None:
        if mode not in MODES:
            raise DeviceError(Trouble.OUT_OF_RANGE, uuid, f"compute mode {mode} is not one of {sorted(MODES)}")
        self._change(SetComputeMode(uuid, MODES[mode]))

    def renew(self) -> bool:
        """Applies all settings again, and returns True, if a new helper answers; DeviceError when none answers."""
        with self._lock:
            started = self.hello().started
            if not self._in_force or started == self._started:
                return False
            for key, change in list(self._in_force.items()):
                try:
                    ask(self._path, self._seconds, change.uuid, change)
                except DeviceError as error:
                    if error.trouble not in HOPELESS:
                        raise  # all of them are applied again next time
                    log.warning("the root helper restarted, and %s could not be applied again: %s", change, error)
                    del self._in_force[key]
            self._started = started
            log.info("the root helper restarted; %s settings were applied again", len(self._in_force))
            return True

    def close(self) -> None:
        """Stops renewing."""
        self._closing.set()
        if self._thread is not None:
            self._thread.join()

    def _change(self, change: DeviceChange) -> None:
        with self._lock:
            reply = ask(self._path, self._seconds, change.uuid, change)
            self._started = self._started or reply.started
            if isinstance(change, ResetClock):
                self._in_force.pop((change.uuid, LockClock), None)
            else:
                self._in_force[change.uuid, type(change)] = change
            if self._thread is None and self._renew_seconds:
                self._thread = threading.Thread(target=self._keep, name="privileged", daemon=True)
                self._thread.start()

    def _keep(self) -> None:
        while not self._closing.wait(self._renew_seconds):
            try:
                self.renew()
            except DeviceError as error:
                log.debug("%s", error)  # the helper is away; the next change reports it


def ask(path: Path, seconds: float, uuid: str, request: HelperRequest) -> HelperReply:
    """Returns the reply if it is a success; everything else becomes a DeviceError of that device."""
    try:
        reply = replies.decode(_exchange(path, seconds, encoder.encode(request) + b"\n"))
    except TimeoutError as error:
        raise DeviceError(Trouble.TIMEOUT, uuid, f"the root helper at {path} does not answer") from error
    except OSError as error:
        raise DeviceError(
            Trouble.NO_PERMISSION, uuid, f"cannot reach the root helper at {path}: {error.strerror}"
        ) from error
    except msgspec.MsgspecError as error:
        raise DeviceError(Trouble.GARBLED, uuid, f"malformed answer of the root helper: {error}") from error
    if not reply.ok:
        known = reply.trouble in Trouble.__members__.values()
        raise DeviceError(Trouble(reply.trouble) if known else Trouble.UNKNOWN, uuid, reply.message)
    return reply


def _exchange(path: Path, seconds: float, line: bytes) -> bytes:
    """Returns the answer. A flooded helper may hang up without one; then the question is repeated."""
    deadline = time.monotonic() + seconds
    while True:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC) as connection:
            connection.settimeout(seconds)
            reply = b""
            with suppress(BlockingIOError, BrokenPipeError, ConnectionResetError):
                connection.connect(str(path))  # BlockingIOError means that the queue is full
                reply = _send_line(connection, line)
        if reply:
            return reply
        if time.monotonic() >= deadline:
            raise TimeoutError
        time.sleep(0.02)


def _send_line(connection: socket.socket, line: bytes) -> bytes:
    with suppress(BrokenPipeError, ConnectionResetError):  # refused before it was read; the answer is there already
        connection.sendall(line)
    reply = b""
    while len(reply) <= MOST_REPLY_BYTES and not reply.endswith(b"\n"):
        more = connection.recv(MOST_REPLY_BYTES)
        if not more:
            break
        reply += more
    return reply
