"""Shares the workers of a pool among callers, so that a flood of requests from one caller locks no other out."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager


class WorkersBusy(Exception):
    """All workers are busy, and enough orders wait already, in all or of this caller."""


class Places:
    """`workers` places at work and `waiting` places in the queue, of which a caller may take half.

    The next turn goes to the caller with the fewest orders at work, and among equals to the first that came.
    """

    def __init__(self, workers: int, waiting: int) -> None:
        self._workers = workers
        self._most = workers + waiting
        self._share = max(1, self._most // 2)
        self._held: Counter[str] = Counter()
        self._working: Counter[str] = Counter()
        self._queue: list[_Turn] = []
        self._moved = threading.Condition()

    @contextmanager
    def turn(self, caller: str, seconds: float | None = None) -> Iterator[None]:
        """Waits for a worker; WorkersBusy if there is no place to wait at, or it takes longer than `seconds`."""
        with self._moved:
            if self._held.total() >= self._most or self._held[caller] >= self._share:
                raise WorkersBusy
            mine = _Turn(caller)
            self._held[caller] += 1
            self._queue.append(mine)
            came = self._moved.wait_for(lambda: self._next() is mine, seconds)
            self._queue.remove(mine)
            if came:
                self._working[caller] += 1
            else:
                _less(self._held, caller)
            self._moved.notify_all()
        if not came:
            raise WorkersBusy
        try:
            yield
        finally:
            with self._moved:
                _less(self._working, caller)
                _less(self._held, caller)
                self._moved.notify_all()

    def _next(self) -> _Turn | None:
        if not self._queue or self._working.total() >= self._workers:
            return None
        return min(self._queue, key=lambda turn: self._working[turn.caller])


class _Turn:
    """An order that waits."""

    def __init__(self, caller: str) -> None:
        self.caller = caller


def _less(counted: Counter[str], caller: str) -> None:
    """Counts one less, and forgets a caller that holds nothing."""
    counted[caller] -= 1
    if not counted[caller]:
        del counted[caller]
