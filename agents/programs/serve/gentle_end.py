"""The end of a drained server: late requests are refused for a moment, accepted ones are answered, and it is over."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from agents.programs.serve.connections import OpenConnections

LINGER_SECONDS = 0.25  # a drained server stays up this long, so that late requests are answered 503 instead of cut off
LAST_SECONDS = 1.0  # limits requests that have begun to arrive, and the reading of answers


class GentleEnd:
    """Calls `deaf` once to stop listening, and `finished` when all is answered and every answer has left."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        is_working: Callable[[], bool],
        deaf: Callable[[], None],
        finished: Callable[[], None],
    ) -> None:
        self.began = False
        self._loop = loop
        self._is_working = is_working
        self._deaf = deaf
        self._finished = finished
        self._lingered = self._closing = self._ended = False

    def watch(self, connections: OpenConnections) -> OpenConnections:
        """Takes the connections that must have left before the end."""
        self._connections = connections
        return connections

    def begin(self) -> None:
        """Begins to drain. A second call changes nothing."""
        if not self.began:
            self.began = True
            self._loop.call_later(LINGER_SECONDS, self._linger_over)

    def check(self) -> None:
        """Goes on to the next step of the end if nothing is left to answer; partial requests are refused or cut off."""
        if not self._lingered or self._ended or self._is_working():
            return
        if not self._closing:
            self._closing = True
            self._deaf()
            self._loop.call_later(LAST_SECONDS, self._connections.abort)
        self._connections.close_idle()
        if not len(self._connections):
            self._ended = True
            self._finished()

    def _linger_over(self) -> None:
        self._lingered = True
        self.check()
