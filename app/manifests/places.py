"""Places at the workers that read large inputs, shared so that one caller's flood shuts nobody else out."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager


class ParserBusy(Exception):
    """Other large inputs are being read, and enough wait already."""


class Places:
    """`workers` at work and `waiting` behind them, of which one caller has half at most.

    The next turn is that of whoever is at work the least, and among those of whoever came first.
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
    def turn(self, caller: str, seconds: float) -> Iterator[None]:
        """Wait for a worker; Busy when there is no place to wait at, or it takes longer than `seconds`."""
        with self._moved:
            if self._held.total() >= self._most or self._held[caller] >= self._share:
                raise ParserBusy
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
            raise ParserBusy
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
    """One input that waits."""

    def __init__(self, caller: str) -> None:
        self.caller = caller


def _less(counted: Counter[str], caller: str) -> None:
    """One less; who holds nothing is not remembered."""
    counted[caller] -= 1
    if not counted[caller]:
        del counted[caller]
