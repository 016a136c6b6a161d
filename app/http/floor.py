"""Registers all connections of the server, bounds their number, and ends those that pass a deadline."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import dataclass
from typing import Protocol

from uvicorn.server import ServerState

from app.http import metrics
from app.http.lanes import KIB, MIB
from app.http.malformed import MalformedRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    """Limits on the connections of one client, and of all clients together."""

    connections: int = 10_240  # 4,096 agents hold two each; the rest is for everybody else
    head_seconds: float = 10.0  # from the first byte of a request, or from connecting, to the end of its head
    head_bytes: int = 32 * KIB
    head_lines: int = 100
    keep_alive_seconds: float = 75.0  # well over the 10 s between two reports of a node
    write_stall_seconds: float = 30.0  # in these a reader takes what was waiting, or at least so many bytes of it
    write_floor_bytes: int = 64 * KIB
    write_buffered_bytes: int = 32 * MIB  # of answers that clients have not taken yet, summed
    linger_seconds: float = 2.0
    linger_bytes: int = 128 * MIB  # discarded: many clients send a whole body before they read the answer
    shutdown_seconds: float = 2.0
    sweep_seconds: float = 1.0


class OpenConnection(Protocol):
    """A connection, as far as the register needs it."""

    socket_transport: asyncio.Transport
    buffered: int  # bytes of answers that the client has not taken
    stalled_since: float | None

    def refuse(self, refusal: MalformedRequest) -> None: ...
    def check(self, now: float) -> None: ...


class Floor(ServerState):
    """uvicorn's register of connections, kept within its limits."""

    def __init__(self, limits: ConnectionLimits) -> None:
        super().__init__()
        self.limits = limits
        self.open: set[OpenConnection] = set()
        self.idle: OrderedDict[OpenConnection, None] = OrderedDict()  # without a request yet; the longest waiting first

    def add(self, connection: OpenConnection) -> None:
        """Closes the connection that has been idle for longest to make room; refuses the new one when none is idle."""
        self.open.add(connection)
        metrics.CONNECTIONS.set(len(self.open))
        if len(self.open) <= self.limits.connections:
            self.idle[connection] = None
            return
        if self.idle:
            longest, _ = self.idle.popitem(last=False)
            self.cut("made-room")
            longest.socket_transport.close()
            self.idle[connection] = None
        else:
            connection.refuse(MalformedRequest(503, "too many connections are open"))

    def remove(self, connection: OpenConnection) -> None:
        self.open.discard(connection)
        self.idle.pop(connection, None)
        metrics.CONNECTIONS.set(len(self.open))

    def cut(self, reason: str) -> None:
        metrics.CUT_CONNECTIONS.labels(reason).inc()

    async def sweep(self) -> None:
        """Checks every connection's deadlines, for ever."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(self.limits.sweep_seconds)
            now = loop.time()
            waiting = 0
            for connection in list(self.open):
                connection.check(now)
                waiting += connection.buffered
            self._bound_buffers(waiting)

    def _bound_buffers(self, waiting: int) -> None:
        """Cuts off the longest-stalled readers while too many bytes wait to be read."""
        if waiting <= self.limits.write_buffered_bytes:
            return
        stalled = [connection for connection in self.open if connection.stalled_since is not None]
        for connection in sorted(stalled, key=lambda connection: connection.stalled_since or 0.0):
            self.cut("slow-reader")
            connection.socket_transport.abort()
            waiting -= connection.buffered
            if waiting <= self.limits.write_buffered_bytes:
                return
