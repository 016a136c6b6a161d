"""Splits what a process uses into the cost of each test and that of what several tests share."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tests.support.meter.calibration import calibrate
from tests.support.meter.usage import usage_of_this_process

LOOK_SECONDS = 60.0  # cores change speed, and so do neighbours


@dataclass(frozen=True, slots=True)
class Cost:
    """CPU seconds of one test, with its own fixtures and all that they started."""

    name: str
    seconds: float
    shared_seconds: float  # of fixtures that it was the first or the last to use
    loop_seconds: float  # of five million additions, timed within the last minute, as is the factor
    factor: float  # how many seconds here one of the quick machine is
    is_slow: bool  # is marked so
    ran: bool  # was not skipped

    @property
    def quick_seconds(self) -> float:
        """What it would need on the machine in whose seconds limits are written."""
        return self.seconds / self.factor


class Clock:
    """Of one process and its children."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self._usage = usage_of_this_process()
        self._calibration, self._looked_at = calibrate(), time.monotonic()
        self._began, self._shared = self._usage.seconds(), 0.0
        self._is_sharing = False

    def begin(self) -> None:
        if time.monotonic() > self._looked_at + LOOK_SECONDS:
            self._calibration, self._looked_at = calibrate(), time.monotonic()
            self._began = self._usage.seconds()
        self._shared = 0.0

    @contextmanager
    def sharing(self) -> Iterator[None]:
        """What is used meanwhile serves several tests. One shared fixture may set up another."""
        if self._is_sharing:
            yield
            return
        self._is_sharing, began = True, self._usage.seconds()
        try:
            yield
        finally:
            self._is_sharing = False
            self._shared += self._usage.seconds() - began

    def read_cost(self, name: str, *, is_slow: bool, ran: bool) -> Cost:
        """Since the test began, or since the one before it ended: to look takes time, too."""
        ended, machine = self._usage.seconds(), self._calibration
        seconds, self._began = ended - self._began - self._shared, ended
        return Cost(name, seconds, self._shared, machine.loop_seconds, machine.factor, is_slow, ran)
