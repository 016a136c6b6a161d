"""Two bounded resources that callers share: bytes of bodies in memory, and places for requests at work."""

from __future__ import annotations

import asyncio
from collections import deque

QUEUE_SHARES = 4  # a caller fills at most this fraction of a queue


class FairShares:
    """Counts the use of a total by caller; no caller may hold more than `share`."""

    def __init__(self, total: int, share: int) -> None:
        self.total = total
        self.share = share
        self.used = 0
        self._by_holder: dict[str, int] = {}

    def take(self, holder: str, amount: int) -> bool:
        held = self._by_holder.get(holder, 0) + amount
        if held > self.share or self.used + amount > self.total:
            return False
        self.used += amount
        self._by_holder[holder] = held
        return True

    def give(self, holder: str, amount: int) -> None:
        self.used -= amount
        rest = self._by_holder[holder] - amount
        if rest:
            self._by_holder[holder] = rest
        else:
            del self._by_holder[holder]

    def held(self, holder: str) -> int:
        return self._by_holder.get(holder, 0)


class Slots:
    """Places for requests at work: `total` in all, `share` of them for a caller; further requests queue.

    A caller with a free share goes before a caller that has used its own up, so one caller's flood of slow requests
    does not delay the others.
    """

    def __init__(self, total: int, share: int, queue: int) -> None:
        self._places = FairShares(total, share)
        self._waiting = FairShares(queue, max(1, queue // QUEUE_SHARES))
        self._queue: deque[tuple[str, asyncio.Future[None]]] = deque()

    @property
    def waiting(self) -> int:
        return len(self._queue)

    @property
    def working(self) -> int:
        return self._places.used

    def try_take(self, holder: str) -> bool:
        return self._places.take(holder, 1)

    async def take(self, holder: str, seconds: float) -> bool:
        """Waits for a place; returns False if none came free in time."""
        if self._places.take(holder, 1):
            return True
        if not self._waiting.take(holder, 1):
            return False
        try:
            return await self._wait(holder, seconds)
        finally:
            self._waiting.give(holder, 1)

    async def _wait(self, holder: str, seconds: float) -> bool:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = (holder, turn)
        self._queue.append(entry)
        try:
            async with asyncio.timeout(seconds):
                await turn
        except TimeoutError:
            return self._withdrawn(entry)
        except asyncio.CancelledError:
            if self._withdrawn(entry):
                self.give(holder)
            raise
        return True

    def give(self, holder: str) -> None:
        self._places.give(holder, 1)
        for entry in self._queue:
            waiting, turn = entry
            if not turn.done() and self._places.take(waiting, 1):
                self._queue.remove(entry)
                turn.set_result(None)
                return

    def _withdrawn(self, entry: tuple[str, asyncio.Future[None]]) -> bool:
        """Leaves the queue; returns True if the place had been given at the same moment."""
        if entry in self._queue:
            self._queue.remove(entry)
            return False
        return True
