"""Decides when a batch starts and what it takes: data in, data out; the clock is an argument.

When free, a batch server starts as soon as `batch` requests wait or the oldest has waited `timeout_seconds`, and takes
all that wait, up to `batch`.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Literal


class QueuedRequest:
    """One request in the queue; `client` receives the answer."""

    __slots__ = ("body", "came", "client", "stage")

    def __init__(self, body: bytes, came: float, client: Any = None) -> None:
        self.body = body
        self.came = came
        self.client = client
        self.stage: Literal["waiting", "taken", "gone"] = "waiting"


class RequestQueue:
    """Requests in order of arrival."""

    __slots__ = ("_gone", "_queue", "batch", "timeout_seconds")

    def __init__(self, batch: int, timeout_seconds: float) -> None:
        self.batch = batch
        self.timeout_seconds = timeout_seconds
        self._queue: deque[QueuedRequest] = deque()
        self._gone = 0

    def __len__(self) -> int:
        return len(self._queue) - self._gone

    def add(self, pending: QueuedRequest) -> None:
        self._queue.append(pending)

    def give_up(self, pending: QueuedRequest) -> bool:
        """Drops a request whose client left; False if it no longer waited. It takes no place in a batch."""
        if pending.stage != "waiting":
            return False
        pending.stage = "gone"
        self._gone += 1
        if self._gone > 64 and self._gone > len(self._queue) // 2:
            self._queue = deque(other for other in self._queue if other.stage == "waiting")
            self._gone = 0
        return True

    def starts_at(self, now: float) -> float | None:
        """Returns when a free server starts its next batch if nothing else arrives; None for an empty queue."""
        self._skip()
        if not self._queue:
            return None
        if len(self) >= self.batch:
            return now
        return max(now, self._queue[0].came + self.timeout_seconds)

    def take(self) -> list[QueuedRequest]:
        """Returns the next batch: all that wait, up to `batch`, oldest first."""
        taken: list[QueuedRequest] = []
        self._skip()
        while self._queue and len(taken) < self.batch:
            pending = self._queue.popleft()
            pending.stage = "taken"
            taken.append(pending)
            self._skip()
        return taken

    def _skip(self) -> None:
        while self._queue and self._queue[0].stage == "gone":
            self._queue.popleft()
            self._gone -= 1
