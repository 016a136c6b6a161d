"""Critical errors (XIDs) as the driver reports them; the health policy decides which of them matter."""

from __future__ import annotations

import ctypes
import threading
import time
from contextlib import suppress
from typing import Any

import pynvml

from agents.devices.nvml.binding import Binding
from agents.devices.nvml.troubles import translate, trouble
from agents.devices.nvml.worker import DriverHangs
from agents.seams.device import DeviceError, Trouble, XidEvent

SLICE_SECONDS = 0.5  # limits one call, so that NVML can be opened again in between


class Events:
    """One event set for all GPUs that report events. It is rebuilt after a GPU is lost, which breaks it for all."""

    def __init__(self, binding: Binding) -> None:
        self._binding = binding
        self._worker = binding.events_worker
        self._slice_seconds = min(SLICE_SECONDS, binding.deadline_seconds / 4)
        self._closing = threading.Event()
        self._set: Any = None
        self._uuids: dict[int, list[str]] = {}  # keyed by the address of the GPU's handle
        self._of: tuple[int, frozenset[str]] = (0, frozenset())

    def wait(self, seconds: float) -> tuple[XidEvent, ...]:
        """Returns the events since the last call, waiting up to `seconds` for the first."""
        until = time.monotonic() + seconds
        while True:
            remaining = max(0.0, until - time.monotonic())
            try:
                self._refresh()
                if self._set is None:
                    self._closing.wait(remaining)
                    return ()
                came = self._ask(min(remaining, self._slice_seconds))
            except DriverHangs:
                raise DeviceError(
                    Trouble.TIMEOUT, "", "wait for events: NVML is still busy with an earlier call"
                ) from None
            except pynvml.NVMLError as error:
                if trouble(error) is not Trouble.LOST:
                    raise translate(error, "", "wait for events") from error
                self._free()
                came = ()
                self._closing.wait(min(remaining, self._slice_seconds))
            if came or remaining <= 0 or self._closing.is_set():
                return came

    def close(self) -> None:
        self._closing.set()
        self._free()

    def _ask(self, seconds: float) -> tuple[XidEvent, ...]:
        held, uuids, generation = self._set, self._uuids, self._of[0]

        def job() -> tuple[XidEvent, ...]:
            return _drain(held, uuids, seconds) if generation == self._binding.generation else ()

        found: tuple[XidEvent, ...] = self._worker.do(job, seconds + self._binding.deadline_seconds)
        return found

    def _refresh(self) -> None:
        slots = self._binding.slots() or self._binding.enumerate()
        now = (self._binding.generation, frozenset(slots))
        if self._set is not None and now == self._of:
            return
        self._free()
        made = self._worker.do(pynvml.nvmlEventSetCreate, self._binding.deadline_seconds)
        uuids: dict[int, list[str]] = {}
        for uuid, slot in slots.items():
            with suppress(DeviceError):  # it reports none, or is gone
                if _address(slot.whole_handle) not in uuids:  # MIG devices share the errors of their GPU
                    self._binding.call(uuid, "register for events", _register, slot.whole_handle, made)
                uuids.setdefault(_address(slot.whole_handle), []).append(uuid)
        self._set, self._uuids, self._of = made, uuids, now
        if not uuids:
            self._free()

    def _free(self) -> None:
        held, self._set = self._set, None
        if held is not None and self._of[0] == self._binding.generation:  # otherwise it was closed together with NVML
            with suppress(DriverHangs, pynvml.NVMLError):
                self._worker.do(lambda: pynvml.nvmlEventSetFree(held), self._binding.deadline_seconds)


def _register(handle: Any, whole_handle: Any, event_set: Any) -> None:
    pynvml.nvmlDeviceGetMemoryInfo(handle)  # a lost GPU may register successfully and still break the set
    pynvml.nvmlDeviceRegisterEvents(whole_handle, pynvml.nvmlEventTypeXidCriticalError, event_set)


def _drain(event_set: Any, uuids: dict[int, list[str]], seconds: float) -> tuple[XidEvent, ...]:
    found: list[XidEvent] = []
    wait_ms = round(seconds * 1000)
    while True:
        try:
            data = pynvml.nvmlEventSetWait(event_set, wait_ms)
        except pynvml.NVMLError as error:
            if trouble(error) is Trouble.TIMEOUT or found:
                return tuple(found)
            raise
        if data.eventType == pynvml.nvmlEventTypeXidCriticalError:
            found += [XidEvent(uuid, int(data.eventData)) for uuid in uuids.get(_address(data.device), ())]
        wait_ms = 0


def _address(handle: Any) -> int:
    return ctypes.cast(handle, ctypes.c_void_p).value or 0
