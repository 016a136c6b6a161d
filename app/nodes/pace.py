"""Long work in portions, with rests between them that are longer than the portions."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Iterator
from threading import Event

RESTS = 2.0  # a third of one core at most: the rest is for those who wait for an answer


class WorkPace:
    """How housekeeping goes about its work, until it is told to stop."""

    def __init__(self, rests: float = RESTS) -> None:
        self._rests = rests
        self._stopping = Event()

    def stop(self) -> None:
        self._stopping.set()

    @property
    def stopped(self) -> bool:
        return self._stopping.is_set()

    def portions(self, of: Iterable[int] | None = None) -> Iterator[int]:
        """Each of `of` (or 0, 1, 2, ...) after a rest as long as the one before deserves."""
        for portion in itertools.count() if of is None else of:
            started = time.monotonic()
            yield portion
            if self._stopping.wait(self._rests * (time.monotonic() - started)):
                return
