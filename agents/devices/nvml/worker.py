"""A thread that does one thing after another, and whose callers wait no longer than a deadline.

A call into NVML can hang for good on a dying GPU, and nothing ends it but the driver. Each GPU has a thread of its
own, so that the others go on; what hangs costs its caller the deadline once, and after that no time at all.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any


class DriverHangs(Exception):
    """The thread did not come back in time, or has not yet from an earlier call."""


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
    """One thread, started with its first job."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._jobs: SimpleQueue[DriverCall | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._hung: DriverCall | None = None

    @property
    def stuck(self) -> bool:
        """Whether a call that somebody gave up waiting for has not come back."""
        hung = self._hung
        return hung is not None and not hung.done.is_set()

    def start(self, function: Callable[[], Any]) -> DriverCall:
        """Queue a call; where an earlier one hangs it is refused, so that nothing is done late."""
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
        """What the call returned, or its exception; DriverHangs when the deadline passed first."""
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
        """`start` and `result` in one."""
        return self.result(self.start(function), seconds)

    def stop(self) -> None:
        """End the thread once it is idle."""
        with self._lock:
            if self._thread is not None:
                self._jobs.put(None)
                self._thread = None

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            if not job.abandoned:  # given up while it was still queued: doing it now would be doing it late
                try:
                    job.value = job.function()
                except BaseException as error:
                    job.error = error
            job.done.set()
            del job
