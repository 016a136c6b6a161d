"""The loaded NVML: identifies GPUs, and runs each call in that GPU's own thread with a deadline."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pynvml

from agents.devices.nvml.troubles import GONE, read_if_reported, translate, trouble
from agents.devices.nvml.worker import DriverCall, DriverHangs, DriverThread
from agents.seams.device import DeviceError, Trouble

DEADLINE_SECONDS = 5.0
REOPEN_SECONDS = 30.0  # NVML sees a GPU that came back only after it is opened again
LONGEST_PAUSE_SECONDS = 600.0
_EVENTS = -1  # no index


@dataclass(slots=True)
class NvmlSlot:
    """A GPU, or a MIG device of one, at one of NVML's indexes, which may be another GPU's once NVML is opened again."""

    index: int  # among the devices of this node
    worker: DriverThread  # of its GPU
    generation: int
    uuid: str = ""
    handle: Any = None
    gpu_uuid: str = ""  # of a MIG device
    gpu_handle: Any = None

    @property
    def whole_handle(self) -> Any:
        """Returns the handle of the whole GPU, which answers what NVML does not know of a MIG device."""
        return self.gpu_handle if self.gpu_uuid else self.handle


class _Reopened(Exception):
    """The handle belongs to an earlier opening of NVML, and may point to another GPU now."""


@dataclass(slots=True)
class _Enumeration:
    """The result of the last enumeration."""

    slots: dict[str, NvmlSlot] = field(default_factory=dict)
    gpus: dict[int, tuple[str, ...]] = field(default_factory=dict)  # NVML's index -> its devices
    troubles: dict[str, Trouble] = field(default_factory=dict)  # of known GPUs that are missing now
    silent: int = 0  # GPUs that do not say what they are


class Binding:
    """An open NVML. `DeviceError` NO_DRIVER when there is none, TIMEOUT when it hangs."""

    nvml = pynvml

    def __init__(self, deadline_seconds: float, reopen_seconds: float = REOPEN_SECONDS) -> None:
        self._deadline_seconds = deadline_seconds
        self._reopen_seconds = self._pause_seconds = reopen_seconds
        self._driver = DriverThread("nvml")
        self._workers: dict[int, DriverThread] = {_EVENTS: DriverThread("nvml-events")}
        self._enumeration = _Enumeration()
        self._lock = threading.RLock()  # of enumerating and reopening
        self.generation = 0  # counts openings of NVML: handles and event sets are valid within one
        self._opened_at = 0.0
        self._open()

    @property
    def deadline_seconds(self) -> float:
        return self._deadline_seconds

    @property
    def events_worker(self) -> DriverThread:
        """The thread that waits for events; NVML is not opened again meanwhile."""
        return self._workers[_EVENTS]

    def driver_version(self) -> str:
        return str(self._ask_driver("read the driver's version", pynvml.nvmlSystemGetDriverVersion))

    def slots(self) -> dict[str, NvmlSlot]:
        """Returns the last enumeration by UUID."""
        return dict(self._enumeration.slots)

    @property
    def silent(self) -> int:
        """Returns how many GPUs did not say what they are when they were enumerated."""
        return self._enumeration.silent

    def enumerate(self) -> dict[str, NvmlSlot]:
        """Finds every GPU again. One that is lost or hangs is left out and hides no other."""
        with self._lock:
            missing = self._enumerate()
            if missing and time.monotonic() - self._opened_at > self._pause_seconds and self._reopen():
                missing = self._enumerate()
                # Opening takes a while, and does not help a GPU that never comes back.
                self._pause_seconds = min(2 * self._pause_seconds, LONGEST_PAUSE_SECONDS)
            if not missing:
                self._pause_seconds = self._reopen_seconds
            return dict(self._enumeration.slots)

    def call(self, uuid: str, what: str, function: Callable[..., Any], *arguments: Any) -> Any:
        """Runs `function(handle, *arguments)` in the GPU's own thread."""
        try:
            try:
                return self._call(self.slot(uuid), function, arguments)
            except _Reopened:
                with self._lock:  # until every GPU has its new handle
                    slot = self.slot(uuid)
                return self._call(slot, function, arguments)
        except pynvml.NVMLError as error:
            raise translate(error, uuid, what) from error
        except (DriverHangs, _Reopened):
            raise DeviceError(Trouble.TIMEOUT, uuid, f"{what}: NVML is still busy with an earlier call") from None

    def slot(self, uuid: str) -> NvmlSlot:
        """Returns the slot of an enumerated GPU; DeviceError explains what happened to any other."""
        if not self._enumeration.slots and not self._enumeration.troubles:
            self.enumerate()
        slot = self._enumeration.slots.get(uuid)
        if slot is None:
            raise DeviceError(self._enumeration.troubles.get(uuid, Trouble.LOST), uuid, "is not a GPU of this node")
        return slot

    def together(self, what: Callable[[NvmlSlot], Any]) -> dict[str, Any]:
        """Runs the same call on every GPU at once; returns a result or a DeviceError for each."""
        started: dict[str, tuple[NvmlSlot, DriverCall | None]] = {}
        for uuid, slot in self._enumeration.slots.items():
            try:
                started[uuid] = (slot, slot.worker.start(partial(what, slot)))
            except DriverHangs:
                started[uuid] = (slot, None)
        until = time.monotonic() + self._deadline_seconds
        return {uuid: self._outcome(uuid, slot, job, until) for uuid, (slot, job) in started.items()}

    def close(self) -> None:
        with suppress(DeviceError):  # it hangs or is gone: the process exits without it
            self._ask_driver("close NVML", pynvml.nvmlShutdown)
        for worker in [self._driver, *self._workers.values()]:
            worker.stop()

    def _call(self, slot: NvmlSlot, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        def job() -> Any:
            if slot.generation != self.generation:
                raise _Reopened
            return function(slot.handle, *arguments)

        return slot.worker.do(job, self._deadline_seconds)

    def _open(self) -> None:
        self._ask_driver("open NVML", pynvml.nvmlInit)
        self.generation += 1
        self._opened_at = time.monotonic()

    def _ask_driver(self, what: str, function: Callable[[], Any]) -> Any:
        try:
            return self._driver.do(function, self._deadline_seconds)
        except pynvml.NVMLError as error:
            raise translate(error, "", what) from error
        except DriverHangs:
            raise DeviceError(Trouble.TIMEOUT, "", f"{what}: NVML is still busy with an earlier call") from None

    def _enumerate(self) -> bool:
        """Returns True if a known GPU, or an index that should have one, is missing."""
        count = int(self._ask_driver("count the GPUs", pynvml.nvmlDeviceGetCount))
        before = self._enumeration
        now = _Enumeration(troubles=dict(before.troubles))
        jobs: list[tuple[int, DriverCall | None]] = []
        for index in range(count):
            worker = self._workers.setdefault(index, DriverThread(f"nvml-{index}"))
            try:
                jobs.append((index, worker.start(partial(list_devices, index))))
            except DriverHangs:
                jobs.append((index, None))
        until = time.monotonic() + self._deadline_seconds
        first = 0  # index of the GPU's first device: those of a silent GPU keep theirs, and so do those after it
        for index, job in jobs:
            worker, known = self._workers[index], before.gpus.get(index, ())
            found = self._outcome(next(iter(known), ""), NvmlSlot(index, worker, self.generation), job, until)
            if isinstance(found, DeviceError):
                now.silent += 1
                now.gpus[index] = known
                now.troubles |= dict.fromkeys(known, found.trouble)
                first += max(1, len(known))
                continue
            for number, device in enumerate(found, first):
                now.slots[device.uuid] = NvmlSlot(
                    number, worker, self.generation, device.uuid, device.handle, device.gpu_uuid, device.gpu_handle
                )
            now.gpus[index] = tuple(device.uuid for device in found)
            first += len(found)
        for uuid in before.slots:
            now.troubles.setdefault(uuid, Trouble.LOST)
        for uuid in now.slots:
            now.troubles.pop(uuid, None)
        self._enumeration = now
        return bool(now.silent or now.troubles)

    def _outcome(self, uuid: str, slot: NvmlSlot, job: DriverCall | None, until: float) -> Any:
        try:
            if job is None:
                raise DriverHangs
            return slot.worker.result(job, until - time.monotonic())
        except pynvml.NVMLError as error:
            return DeviceError(trouble(error), uuid, f"device {slot.index}: {error}")
        except DriverHangs:
            return DeviceError(Trouble.TIMEOUT, uuid, f"device {slot.index}: NVML is still busy with an earlier call")

    def _reopen(self) -> bool:
        """Opens NVML again while no GPU's thread is in it; False when one does not return."""
        may_continue = threading.Event()
        waiting = [threading.Event() for _ in self._workers]
        try:
            for worker, here in zip(self._workers.values(), waiting, strict=True):
                worker.start(partial(_wait_here, here, may_continue, 2 * self._deadline_seconds))
            until = time.monotonic() + self._deadline_seconds
            if not all(here.wait(max(0.0, until - time.monotonic())) for here in waiting):
                return False
            self._ask_driver("close NVML", pynvml.nvmlShutdown)
            self._open()
            return True
        except (DriverHangs, DeviceError):
            return False
        finally:
            self._opened_at = time.monotonic()  # tried; wait before the next attempt
            may_continue.set()


def _wait_here(here: threading.Event, may_continue: threading.Event, seconds: float) -> None:
    here.set()
    may_continue.wait(seconds)


@dataclass(frozen=True, slots=True)
class NvmlDeviceHandle:
    """A device that models can run on."""

    uuid: str
    handle: Any
    gpu_uuid: str = ""  # of the GPU that it is a part of
    gpu_handle: Any = None


def list_devices(index: int) -> tuple[NvmlDeviceHandle, ...]:
    """Returns what runs models at this index; nothing for a GPU in MIG mode that has not been divided.

    A GPU in MIG mode runs nothing itself. A mode that takes effect only after a reset does not count yet.
    """
    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    uuid = str(pynvml.nvmlDeviceGetUUID(handle))
    current, _ = read_if_reported(pynvml.nvmlDeviceGetMigMode, handle) or (pynvml.NVML_DEVICE_MIG_DISABLE, 0)
    if current != pynvml.NVML_DEVICE_MIG_ENABLE:
        return (NvmlDeviceHandle(uuid, handle),)
    found = []
    for number in range(int(pynvml.nvmlDeviceGetMaxMigDeviceCount(handle))):
        try:
            part = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, number)
            found.append(NvmlDeviceHandle(str(pynvml.nvmlDeviceGetUUID(part)), part, uuid, handle))
        except pynvml.NVMLError as error:
            if trouble(error) in GONE:
                raise  # any other: no device has this number
    return tuple(found)
