"""The open connections of a server: bounded in number, and those that miss their deadline are cut off."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from agents.programs.serve.http import HttpConnection, HttpRequest

MOST_CONNECTIONS = 512


class OpenConnections:
    """Accepts connections. `on_lost` follows the end of each, and `on_sweep` each look at the deadlines."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        handle: Callable[[HttpConnection, HttpRequest], None],
        on_lost: Callable[[HttpConnection], None],
        request_seconds: float,
        on_sweep: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._handle = handle
        self._on_lost = on_lost
        self._on_sweep = on_sweep
        self._request_seconds = request_seconds
        self._sweep_seconds = min(2.0, request_seconds / 4)
        self._sweeping = False
        self._open: set[HttpConnection] = set()

    def __len__(self) -> int:
        return len(self._open)

    def accept(self) -> HttpConnection:
        connection = HttpConnection(self._loop, self._handle, self._lost, self._request_seconds)
        if len(self._open) >= MOST_CONNECTIONS and not self._make_room():
            connection.unwelcome = True
        self._open.add(connection)
        if not self._sweeping:
            self._sweeping = True
            self._loop.call_later(self._sweep_seconds, self._sweep)
        return connection

    def close_idle(self) -> None:
        for connection in list(self._open):
            connection.close_if_idle()

    def abort(self) -> None:
        """Cuts off the rest, whose time is up."""
        for connection in list(self._open):
            connection.abort()

    def _make_room(self) -> bool:
        """Drops the longest idle connection; without an idle one, the slowest to send its request."""
        idle = [connection for connection in self._open if not connection.busy and not connection.lost]
        if idle:
            gone = min(idle, key=lambda connection: (connection.partial, connection.deadline))
            self._open.discard(gone)
            gone.abort()
        return bool(idle)

    def _sweep(self) -> None:
        now = self._loop.time()
        for connection in [each for each in self._open if each.deadline < now]:
            connection.expire()
        self._sweeping = bool(self._open)
        if self._sweeping:
            self._loop.call_later(self._sweep_seconds, self._sweep)
        self._on_sweep()

    def _lost(self, connection: HttpConnection) -> None:
        self._open.discard(connection)
        self._on_lost(connection)
