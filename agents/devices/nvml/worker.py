"""A thread that runs one call after another, and whose callers wait no longer than a deadline.

A call into NVML can hang forever on a dying GPU, and only the driver can end it. Each GPU has its own thread, so the
others continue; a call that hangs costs its caller the deadline once, and later callers no time at all.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any


class DriverHangs(Exception):
    """The call did not return in time, or an earlier one has not returned yet."""


class DriverCall:
    """One call; `DriverThread.result` waits for it."""

    __slots__ = ("abandoned", "done", "error", "function", "value")

    def __init__(self, function: Callable[[], Any]) -> None:
        self.function = function
        self.done = threading.Event()
        self.value: Any = None
        self.error: BaseException | None = None
        self.abandoned = False


class DriverThread:
    """One thread, started by its first call."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._jobs: SimpleQueue[DriverCall | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._hung: DriverCall | None = None

    @property
    def stuck(self) -> bool:
        """True while an abandoned call has not returned."""
        hung = self._hung
        return hung is not None and not hung.done.is_set()

    def start(self, function: Callable[[], Any]) -> DriverCall:
        """Queues a call; refused while an earlier one hangs, so that nothing is done late."""
        job = DriverCall(function)
        with self._lock:
            if self.stuck:
                raise DriverHangs
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()
            self._jobs.put(job)
        return job

    def result(self, job: DriverCall, seconds: float) -> Any:
        """Returns the call's result or raises its exception; DriverHangs when the deadline passed first."""
        if not job.done.wait(max(0.0, seconds)):
            with self._lock:
                if not job.done.is_set():
                    job.abandoned = True
                    self._hung = job
                    raise DriverHangs
        if job.error is not None:
            raise job.error
        return job.value

    def do(self, function: Callable[[], Any], seconds: float) -> Any:
        """Combines `start` and `result`."""
        return self.result(self.start(function), seconds)

    def stop(self) -> None:
        """Ends the thread once it is idle."""
        with self._lock:
            if self._thread is not None:
                self._jobs.put(None)
                self._thread = None

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            if not job.abandoned:  # abandoned while still queued: running it now would be too late
                try:
                    job.value = job.function()
                except BaseException as error:
                    job.error = error
            job.done.set()
            del job
