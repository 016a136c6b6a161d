"""The agent's side of the root helper: its Writer, which keeps in force what was set when the helper is restarted."""

from __future__ import annotations

import logging
import threading
from pathlib import Path

from agents.devices.privileged.question import ask
from agents.devices.privileged.wire import (
    MODES,
    DeviceChange,
    Hello,
    HelperReply,
    LockClock,
    ResetClock,
    SetComputeMode,
    SetPower,
)
from agents.seams.device import DeviceError, Trouble

RENEW_SECONDS = 5.0
HOPELESS = frozenset({Trouble.LOST, Trouble.NOT_SUPPORTED, Trouble.OUT_OF_RANGE})  # of a device that is another now

log = logging.getLogger(__name__)


class Privileged:
    """Asks the root helper. Every call may raise DeviceError; none takes longer than its deadline.

    A helper that is stopped puts everything back, also when it is only upgraded. So once something was set, a thread
    looks every `renew_seconds` whether the same helper answers, and sets it again when it is another; 0: never.
    """

    def __init__(self, path: Path, seconds: float = 5.0, renew_seconds: float = RENEW_SECONDS) -> None:
        self._path = path
        self._seconds = seconds
        self._renew_seconds = renew_seconds
        self._in_force: dict[tuple[str, type[DeviceChange]], DeviceChange] = {}
        self._started = ""  # the life of the helper in which it was set
        self._lock = threading.Lock()  # of both, and of what is said: an older change must not come after a newer
        self._thread: threading.Thread | None = None
        self._closing = threading.Event()

    def hello(self) -> HelperReply:
        """Who answers: its version and, in `started`, which life of it."""
        return ask(self._path, self._seconds, "", Hello())

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

    def renew(self) -> bool:
        """Whether another helper than before answered, and everything was set again; DeviceError when none answers."""
        with self._lock:
            started = self.hello().started
            if not self._in_force or started == self._started:
                return False
            for key, change in list(self._in_force.items()):
                try:
                    ask(self._path, self._seconds, change.uuid, change)
                except DeviceError as error:
                    if error.trouble not in HOPELESS:
                        raise  # and all of it again the next time
                    log.warning("the root helper was restarted, and %s was not set again: %s", change, error)
                    del self._in_force[key]
            self._started = started
            log.info("the root helper was restarted; %s settings were made again", len(self._in_force))
            return True

    def close(self) -> None:
        """Nothing is renewed from now on."""
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
                log.debug("%s", error)  # it is away; whoever changes something is told
