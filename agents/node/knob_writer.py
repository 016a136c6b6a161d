"""Sets the knobs that can be turned while copies run: GPU clocks and power caps, batch sizes of copies."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from agents.keeper.copies import NodeCopy
from agents.keeper.drivers import NodeDrivers
from agents.seams.device import Applied, DeviceError, Trouble
from agents.templates import Filled

RETRY_SECONDS = 10.0  # after a knob could not be set
RENEW_SECONDS = 60.0  # a reloaded driver or an operator may have reset a device's knob

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class KnobState:
    """A knob's requested value and the value read back; `trouble` says why it could not be set."""

    requested: float | None
    applied: float | None
    at: float
    trouble: str = ""


class KnobWriter:
    """Sets a knob when its wanted value changes, and remembers the result."""

    def __init__(self, drivers: NodeDrivers) -> None:
        self._drivers = drivers
        self.clocks: dict[str, KnobState] = {}  # by GPU
        self.caps: dict[str, KnobState] = {}
        self.doors: dict[str, KnobState] = {}
        self.batches: dict[str, KnobState] = {}  # by copy
        self._timeouts: dict[str, float] = {}

    def set_clock(self, gpu: str, mhz: int | None, now: float) -> None:
        """Locks the SM clock of a GPU; None releases a clock that we locked."""
        self._set("clock", self.clocks, gpu, mhz, lambda: self._drivers.device.lock_clock(gpu, mhz), now)

    def set_cap(self, gpu: str, watts: float | None, now: float) -> None:
        """Sets the hardware power limit, the backstop of the power loop; None restores the device's own."""
        self._set("cap", self.caps, gpu, watts, lambda: self._drivers.device.cap_power(gpu, watts), now)

    def set_batch(self, copy: NodeCopy, filled: Filled, batch: float, timeout_ms: float, now: float) -> None:
        """Limits a copy's batches to `batch`; it was started with the batch planned at that time."""
        if filled.set_batch is None:
            return
        if (
            self._is_set(self.batches.get(copy.id), batch, now, for_good=True)
            and self._timeouts.get(copy.id) == timeout_ms
        ):
            return
        before = self.batches.get(copy.id)
        if before is not None and before.trouble and now - before.at < RETRY_SECONDS:
            return  # even for a new value: a copy that does not answer delays the reading of every device
        reply = self._drivers.talk.ask(copy.listens_at, filled.set_batch, batch=batch, batch_timeout_ms=timeout_ms)
        trouble = "" if reply.ok else f"answered {reply.status or 'nothing'}"
        self.batches[copy.id] = KnobState(batch, batch if reply.ok else None, now, trouble)
        self._timeouts[copy.id] = timeout_ms

    def forget(self, here: set[str]) -> None:
        """Forgets copies that are gone."""
        for name in self.batches.keys() - here:
            del self.batches[name]
            self._timeouts.pop(name, None)

    def close_door(self, gpu: str, now: float) -> None:
        """Makes a device with copies exclusive to MPS."""
        self._set("compute mode", self.doors, gpu, 1.0, lambda: self._drivers.device.exclusive(gpu, True), now)

    def _set(
        self,
        what: str,
        known: dict[str, KnobState],
        gpu: str,
        wanted: float | None,
        write: Callable[[], Applied],
        now: float,
    ) -> None:
        if self._is_set(known.get(gpu), wanted, now):
            return
        try:
            known[gpu] = KnobState(wanted, write().applied, now)
        except DeviceError as error:
            known[gpu] = _note_failure(what, known.get(gpu), wanted, error, now)

    @staticmethod
    def _is_set(state: KnobState | None, wanted: float | None, now: float, for_good: bool = False) -> bool:
        if state is None or state.requested != wanted:
            return state is None and wanted is None
        if state.trouble:
            return now - state.at < RETRY_SECONDS
        return for_good or wanted is None or now - state.at < RENEW_SECONDS


def _note_failure(
    what: str, before: KnobState | None, wanted: float | None, error: DeviceError, now: float
) -> KnobState:
    """Returns the failed state; logs a failure once, however often it is retried."""
    logged = before is not None and before.trouble == error.trouble
    if error.trouble is not Trouble.NOT_SUPPORTED and not logged:
        log.warning("cannot set the %s of a GPU to %s: %s", what, wanted, error)
    return KnobState(wanted, None, now, error.trouble)
