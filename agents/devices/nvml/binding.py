"""The loaded NVML: which GPU is which, and each call to it in that GPU's own thread, with a deadline."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pynvml

from agents.devices.nvml.troubles import translated, trouble
from agents.devices.nvml.worker import DriverCall, DriverHangs, DriverThread
from agents.seams.device import DeviceError, Trouble

DEADLINE_SECONDS = 5.0
REOPEN_SECONDS = 30.0  # NVML learns of a GPU that came back only when it is opened again
LONGEST_PAUSE_SECONDS = 600.0
_EVENTS = -1  # no index


@dataclass(slots=True)
class NvmlSlot:
    """One of NVML's indexes; which GPU it is may change when NVML is opened again."""

    index: int
    worker: DriverThread
    generation: int
    uuid: str = ""
    handle: Any = None


class _Reopened(Exception):
    """The handle is of an earlier opening of NVML, and may mean another GPU now."""


@dataclass(slots=True)
class _Enumeration:
    """What the last enumeration saw."""

    slots: dict[str, NvmlSlot] = field(default_factory=dict)
    troubles: dict[str, Trouble] = field(default_factory=dict)  # of GPUs seen before and not this time


class Binding:
    """NVML, opened. `DeviceError` NO_DRIVER when there is none, TIMEOUT when it hangs."""

    nvml = pynvml

    def __init__(self, deadline_seconds: float = DEADLINE_SECONDS, reopen_seconds: float = REOPEN_SECONDS) -> None:
        self._deadline_seconds = deadline_seconds
        self._reopen_seconds = self._pause_seconds = reopen_seconds
        self._driver = DriverThread("nvml")
        self._workers: dict[int, DriverThread] = {_EVENTS: DriverThread("nvml-events")}
        self._seen = _Enumeration()
        self._lock = threading.RLock()  # of enumerating and reopening
        self.generation = 0  # counts how often NVML was opened: handles and event sets are of one opening
        self._opened_at = 0.0
        self._open()

    @property
    def deadline_seconds(self) -> float:
        return self._deadline_seconds

    @property
    def events_worker(self) -> DriverThread:
        """The thread that waits for events: NVML is not opened again while it does."""
        return self._workers[_EVENTS]

    def driver_version(self) -> str:
        return str(self._of_driver("read the driver's version", pynvml.nvmlSystemGetDriverVersion))

    def slots(self) -> dict[str, NvmlSlot]:
        """As of the last enumeration, by UUID."""
        return dict(self._seen.slots)

    def enumerate(self) -> dict[str, NvmlSlot]:
        """Find every GPU afresh. One that is lost or hangs is missing, and hides no other."""
        with self._lock:
            missing = self._enumerate()
            if missing and time.monotonic() - self._opened_at > self._pause_seconds and self._reopen():
                missing = self._enumerate()
                # Opening takes a while, and for one that never comes back it is in vain.
                self._pause_seconds = min(2 * self._pause_seconds, LONGEST_PAUSE_SECONDS)
            if not missing:
                self._pause_seconds = self._reopen_seconds
            return dict(self._seen.slots)

    def call(self, uuid: str, what: str, function: Callable[..., Any], *arguments: Any) -> Any:
        """`function(handle, *arguments)` in the GPU's own thread."""
        try:
            try:
                return self._called(self.slot(uuid), function, arguments)
            except _Reopened:
                with self._lock:  # until every GPU has its handle again
                    slot = self.slot(uuid)
                return self._called(slot, function, arguments)
        except pynvml.NVMLError as error:
            raise translated(error, uuid, what) from error
        except (DriverHangs, _Reopened):
            raise DeviceError(Trouble.TIMEOUT, uuid, f"{what}: NVML has not come back") from None

    def slot(self, uuid: str) -> NvmlSlot:
        """Of a GPU that the last enumeration saw; DeviceError says what became of any other."""
        if not self._seen.slots and not self._seen.troubles:
            self.enumerate()
        slot = self._seen.slots.get(uuid)
        if slot is None:
            raise DeviceError(self._seen.troubles.get(uuid, Trouble.LOST), uuid, "is not among the GPUs of this node")
        return slot

    def together(self, what: Callable[[NvmlSlot], Any]) -> dict[str, Any]:
        """Do the same with every GPU at once; a result or a DeviceError for each."""
        started: dict[str, tuple[NvmlSlot, DriverCall | None]] = {}
        for uuid, slot in self._seen.slots.items():
            try:
                started[uuid] = (slot, slot.worker.start(partial(what, slot)))
            except DriverHangs:
                started[uuid] = (slot, None)
        until = time.monotonic() + self._deadline_seconds
        return {uuid: self._outcome(uuid, slot, job, until) for uuid, (slot, job) in started.items()}

    def close(self) -> None:
        with suppress(DeviceError):  # it hangs or is gone: the process ends without it
            self._of_driver("close NVML", pynvml.nvmlShutdown)
        for worker in [self._driver, *self._workers.values()]:
            worker.stop()

    def _called(self, slot: NvmlSlot, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        def job() -> Any:
            if slot.generation != self.generation:
                raise _Reopened
            return function(slot.handle, *arguments)

        return slot.worker.do(job, self._deadline_seconds)

    def _open(self) -> None:
        self._of_driver("open NVML", pynvml.nvmlInit)
        self.generation += 1
        self._opened_at = time.monotonic()

    def _of_driver(self, what: str, function: Callable[[], Any]) -> Any:
        try:
            return self._driver.do(function, self._deadline_seconds)
        except pynvml.NVMLError as error:
            raise translated(error, "", what) from error
        except DriverHangs:
            raise DeviceError(Trouble.TIMEOUT, "", f"{what}: NVML has not come back") from None

    def _enumerate(self) -> bool:
        """Whether a GPU that was there, or an index that should be one, is missing."""
        count = int(self._of_driver("count the GPUs", pynvml.nvmlDeviceGetCount))
        before = self._seen
        names = {slot.index: uuid for uuid, slot in before.slots.items()}
        now = _Enumeration(troubles=dict(before.troubles))
        jobs: list[tuple[int, DriverCall | None]] = []
        for index in range(count):
            worker = self._workers.setdefault(index, DriverThread(f"nvml-{index}"))
            try:
                jobs.append((index, worker.start(partial(_named, index))))
            except DriverHangs:
                jobs.append((index, None))
        until = time.monotonic() + self._deadline_seconds
        unnamed = False
        for index, job in jobs:
            slot = NvmlSlot(index, self._workers[index], self.generation)
            found = self._outcome(names.get(index, ""), slot, job, until)
            if isinstance(found, DeviceError):
                unnamed = True
                if index in names:
                    now.troubles[names[index]] = found.trouble
            else:
                slot.uuid, slot.handle = found
                now.slots[slot.uuid] = slot
        for uuid in before.slots:
            now.troubles.setdefault(uuid, Trouble.LOST)
        for uuid in now.slots:
            now.troubles.pop(uuid, None)
        self._seen = now
        return unnamed or bool(now.troubles)

    def _outcome(self, uuid: str, slot: NvmlSlot, job: DriverCall | None, until: float) -> Any:
        try:
            if job is None:
                raise DriverHangs
            return slot.worker.result(job, until - time.monotonic())
        except pynvml.NVMLError as error:
            return DeviceError(trouble(error), uuid, f"device {slot.index}: {error}")
        except DriverHangs:
            return DeviceError(Trouble.TIMEOUT, uuid, f"device {slot.index}: NVML has not come back")

    def _reopen(self) -> bool:
        """Close NVML and open it while no GPU's thread is in it; False when one does not come out."""
        go_on = threading.Event()
        waiting = [threading.Event() for _ in self._workers]
        try:
            for worker, here in zip(self._workers.values(), waiting, strict=True):
                worker.start(partial(_wait_here, here, go_on, 2 * self._deadline_seconds))
            until = time.monotonic() + self._deadline_seconds
            if not all(here.wait(max(0.0, until - time.monotonic())) for here in waiting):
                return False
            self._of_driver("close NVML", pynvml.nvmlShutdown)
            self._open()
            return True
        except (DriverHangs, DeviceError):
            return False
        finally:
            self._opened_at = time.monotonic()  # tried: not again for a while
            go_on.set()


def _wait_here(here: threading.Event, go_on: threading.Event, seconds: float) -> None:
    here.set()
    go_on.wait(seconds)


def _named(index: int) -> tuple[str, Any]:
    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    return str(pynvml.nvmlDeviceGetUUID(handle)), handle
