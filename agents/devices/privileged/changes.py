"""Changes a device: checks the request, saves the original, writes, reads back; undoes all changes at the end."""

from __future__ import annotations

import logging
from collections.abc import Callable

from agents.devices.nvml.originals import Original, Originals
from agents.devices.nvml.writer import POWER_STEP_MW
from agents.devices.privileged.root_devices import RootDevices
from agents.devices.privileged.rules import check_change, refuse
from agents.devices.privileged.wire import (
    MODE_NUMBERS,
    DeviceChange,
    HelperReply,
    LockClock,
    ResetClock,
    SetComputeMode,
    SetPower,
)
from agents.seams.device import DeviceError, Trouble

log = logging.getLogger(__name__)


class ReversibleChanges:
    """Makes changes and can undo them."""

    def __init__(self, board: RootDevices, originals: Originals) -> None:
        self._board = board
        self._originals = originals

    def make(self, change: DeviceChange) -> HelperReply:
        """Carries out one change. It writes nothing before the original value is on disk."""
        try:
            return check_change(change, self._board.allowed(change.uuid)) or self._make(change)
        except DeviceError as error:
            return refuse(error.trouble, error.what)
        except OSError as error:
            return refuse(Trouble.UNKNOWN, f"nothing was changed; the original setting cannot be saved: {error}")

    def undo_all(self) -> bool:
        """Restores the settings from before the first change ; True if all succeeded, the rest stays on record."""
        whole = True
        for uuid in self._originals.changed():
            whole = self._undo(uuid) and whole
        return whole

    def _make(self, change: DeviceChange) -> HelperReply:
        if isinstance(change, LockClock | ResetClock):
            return self._clock(change)
        if isinstance(change, SetPower):
            return self._power(change)
        return self._compute_mode(change)

    def _clock(self, change: LockClock | ResetClock) -> HelperReply:
        if isinstance(change, ResetClock):
            self._board.reset_clock(change.uuid)
            return HelperReply(ok=True)
        self._originals.keep(change.uuid, Original(clock_locked=True))
        self._board.lock_clock(change.uuid, change.mhz)
        return HelperReply(ok=True)  # the driver reports only the current clock; the agent measures it

    def _power(self, change: SetPower) -> HelperReply:
        before = self._board.power_mw(change.uuid)
        if before == change.mw:
            return HelperReply(ok=True, before=before, applied=before)
        self._originals.keep(change.uuid, Original(power_mw=before))
        self._board.set_power_mw(change.uuid, change.mw)
        return _read_back(change.mw, before, self._board.power_mw(change.uuid), POWER_STEP_MW)

    def _compute_mode(self, change: SetComputeMode) -> HelperReply:
        wanted = MODE_NUMBERS[change.mode]
        before = self._board.compute_mode(change.uuid)
        if before == wanted:
            return HelperReply(ok=True, before=before, applied=before)
        if change.mode == "prohibited" and self._originals.of(change.uuid).compute_mode != wanted:
            return refuse(Trouble.OUT_OF_RANGE, f"{change.uuid} was not in mode prohibited before the first change")
        self._originals.keep(change.uuid, Original(compute_mode=before))
        self._board.set_compute_mode(change.uuid, wanted)
        return _read_back(wanted, before, self._board.compute_mode(change.uuid))

    def _undo(self, uuid: str) -> bool:
        original = self._originals.of(uuid)
        whole = True
        # Each setting is restored even if another fails: a cap that stays must not leave the device exclusive too.
        if original.clock_locked:
            whole = self._try_to_put_back(uuid, "clock", lambda: self._board.reset_clock(uuid)) and whole
        if (power_mw := original.power_mw) is not None:
            whole = (
                self._try_to_put_back(uuid, "power limit", lambda: self._board.set_power_mw(uuid, power_mw)) and whole
            )
        if (mode := original.compute_mode) is not None:
            whole = (
                self._try_to_put_back(uuid, "compute mode", lambda: self._board.set_compute_mode(uuid, mode)) and whole
            )
        if whole:
            self._originals.forget(uuid)
            log.info("%s: the settings from before the first change are restored", uuid)
        return whole

    def _try_to_put_back(self, uuid: str, what: str, put_back: Callable[[], None]) -> bool:
        try:
            put_back()
        except DeviceError as error:
            log.error("cannot restore the %s of %s: %s", what, uuid, error)
            return False
        return True


def _read_back(wanted: int, before: int, applied: int, step: int = 0) -> HelperReply:
    """Compares with the value read back, because a successful call proves nothing."""
    if abs(applied - wanted) <= step:
        return HelperReply(ok=True, before=before, applied=applied)
    message = f"requested {wanted}, but {applied} is in force"
    return HelperReply(ok=False, trouble=Trouble.NOT_APPLIED.value, message=message, before=before, applied=applied)
