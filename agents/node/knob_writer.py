"""The knobs that can be turned while everything runs: clocks and caps of GPUs, batches of copies."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from agents.keeper.copies import NodeCopy
from agents.keeper.drivers import NodeDrivers
from agents.seams.device import DeviceError, Trouble
from agents.templates import Filled

AGAIN_SECONDS = 10.0  # after a knob did not turn
RENEW_SECONDS = 60.0  # a reloaded driver, or somebody at a terminal, may have turned a device's knob back

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class KnobState:
    """A knob as it was asked for and as it was read back; `trouble` when it did not turn."""

    requested: float | None
    applied: float | None
    at: float
    trouble: str = ""


class KnobWriter:
    """Turns a knob when it should stand elsewhere than it was last turned to, and remembers what came of it."""

    def __init__(self, drivers: NodeDrivers) -> None:
        self._drivers = drivers
        self.clocks: dict[str, KnobState] = {}  # by GPU
        self.caps: dict[str, KnobState] = {}
        self.doors: dict[str, KnobState] = {}
        self.batches: dict[str, KnobState] = {}  # by copy
        self._timeouts: dict[str, float] = {}

    def turn_clock(self, gpu: str, mhz: int | None, now: float) -> None:
        """Hold the SM clock of a GPU; None frees one that we held."""
        if self._stands(self.clocks.get(gpu), mhz, now):
            return
        try:
            applied = self._drivers.device.lock_clock(gpu, mhz)
            self.clocks[gpu] = KnobState(mhz, applied.applied, now)
        except DeviceError as error:
            self.clocks[gpu] = _refused("clock", self.clocks.get(gpu), mhz, error, now)

    def turn_cap(self, gpu: str, watts: float | None, now: float) -> None:
        """Have the hardware keep a power limit, as the backstop of the power loop; None: the device's own."""
        if self._stands(self.caps.get(gpu), watts, now):
            return
        try:
            applied = self._drivers.device.cap_power(gpu, watts)
            self.caps[gpu] = KnobState(watts, applied.applied, now)
        except DeviceError as error:
            self.caps[gpu] = _refused("cap", self.caps.get(gpu), watts, error, now)

    def turn_batch(self, copy: NodeCopy, filled: Filled, batch: float, timeout_ms: float, now: float) -> None:
        """Have a copy take batches of at most `batch`. It was started with the batch that was planned then."""
        if filled.set_batch is None:
            return
        if (
            self._stands(self.batches.get(copy.id), batch, now, for_good=True)
            and self._timeouts.get(copy.id) == timeout_ms
        ):
            return
        before = self.batches.get(copy.id)
        if before is not None and before.trouble and now - before.at < AGAIN_SECONDS:
            return  # whatever is wanted of it: one that does not answer holds up the look at every device
        reply = self._drivers.talk.ask(copy.port, filled.set_batch, batch=batch, batch_timeout_ms=timeout_ms)
        trouble = "" if reply.ok else f"answered {reply.status or 'nothing'}"
        self.batches[copy.id] = KnobState(batch, batch if reply.ok else None, now, trouble)
        self._timeouts[copy.id] = timeout_ms

    def forget(self, here: set[str]) -> None:
        """Drop what is known of copies that are gone."""
        for name in self.batches.keys() - here:
            del self.batches[name]
            self._timeouts.pop(name, None)

    def close_door(self, gpu: str, now: float) -> None:
        """Nobody but MPS shall open a device that copies run on."""
        if self._stands(self.doors.get(gpu), 1.0, now):
            return
        try:
            self.doors[gpu] = KnobState(1.0, self._drivers.device.exclusive(gpu, True).applied, now)
        except DeviceError as error:
            self.doors[gpu] = _refused("compute mode", self.doors.get(gpu), 1.0, error, now)

    @staticmethod
    def _stands(turned: KnobState | None, wanted: float | None, now: float, for_good: bool = False) -> bool:
        if turned is None or turned.requested != wanted:
            return turned is None and wanted is None
        if turned.trouble:
            return now - turned.at < AGAIN_SECONDS
        return for_good or wanted is None or now - turned.at < RENEW_SECONDS


def _refused(what: str, before: KnobState | None, wanted: float | None, error: DeviceError, now: float) -> KnobState:
    """Said once, however often it is tried again."""
    said = before is not None and before.trouble == error.trouble
    if error.trouble is not Trouble.NOT_SUPPORTED and not said:
        log.warning("the %s of a GPU was not set to %s: %s", what, wanted, error)
    return KnobState(wanted, None, now, error.trouble)
