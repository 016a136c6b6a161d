"""Paces long work: portions, and pauses between them that are longer than the portions."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Iterator
from threading import Event

PAUSE_FACTOR = 2.0  # pauses last twice as long as work: at most a third of a core, the rest answers requests


class WorkPace:
    """The pace of housekeeping, until it is stopped."""

    def __init__(self, pause_factor: float = PAUSE_FACTOR) -> None:
        self._pause_factor = pause_factor
        self._stopping = Event()

    def stop(self) -> None:
        self._stopping.set()

    @property
    def stopped(self) -> bool:
        return self._stopping.is_set()

    def portions(self, of: Iterable[int] | None = None) -> Iterator[int]:
        """Yields each of `of` (or 0, 1, 2, ...), and pauses after it as long as its work deserves."""
        for portion in itertools.count() if of is None else of:
            started = time.monotonic()
            yield portion
            if self._stopping.wait(self._pause_factor * (time.monotonic() - started)):
                return
