"""A server on an event loop: connections bounded in number, cut off when they are late, and a gentle end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TypeAlias

from agents.http.connection import HttpConnection
from agents.http.messages import HttpRequest

MOST_CONNECTIONS = 512
LINGER_SECONDS = 0.25  # a drained server stays up this long, so that late requests are answered 503 instead of cut off
CONTROL = {  # everybody may ask the rest
    "/v1/batch": "PUT", "/v1/warmup": "POST", "/v1/drain": "POST", "/v1/load_lora_adapter": "POST",
    "/v1/unload_lora_adapter": "POST",
}  # fmt: skip
Routes: TypeAlias = Mapping[str, Mapping[str, Callable[[HttpConnection, HttpRequest], None]]]  # by path and method
LAST_SECONDS = 1.0  # limits requests that have begun to arrive, and the reading of answers


class LoopServer:
    """Accepts connections until drained; then calls `deaf` once to stop listening, and `finished` when all is answered.

    Requests that control the server need `control_token`; empty: none do. `on_lost` follows the end of each connection.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        request_seconds: float,
        routes: Routes,
        control_token: str,
        refuse: Callable[[HttpConnection, int, str, str], None],
        on_lost: Callable[[HttpConnection], None],
        is_working: Callable[[], bool],
        deaf: Callable[[], None],
        finished: Callable[[], None],
    ) -> None:
        self.draining = False
        self._loop = loop
        self._routes = routes
        self._control_token = control_token
        self._refuse = refuse
        self._on_lost = on_lost
        self._is_working = is_working
        self._deaf = deaf
        self._finished = finished
        self._request_seconds = request_seconds
        self._sweep_seconds = min(2.0, request_seconds / 4)
        self._sweeping = self._lingered = self._closing = self._ended = False
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

    def _handle(self, connection: HttpConnection, request: HttpRequest) -> None:
        path = request.path.partition("?")[0]
        methods = self._routes.get(path)
        if methods is None:
            self._refuse(connection, 404, "unknown path", "")
        elif request.method not in methods:
            allowed = ", ".join(methods)
            self._refuse(connection, 405, f"allowed: {allowed}", f"Allow: {allowed}\r\n")
        elif CONTROL.get(path) == request.method and not request.may_control(self._control_token):
            self._refuse(connection, 401, "only the agent of this node controls this server", "")
        else:
            methods[request.method](connection, request)

    def drain(self) -> None:
        """Begins the end: late requests are refused for a moment, accepted ones are answered. Again changes nothing."""
        if not self.draining:
            self.draining = True
            self._loop.call_later(LINGER_SECONDS, self._linger_over)

    def check(self) -> None:
        """Goes on to the next step of the end if nothing is left to answer; partial requests are refused or cut off."""
        if not self._lingered or self._ended or self._is_working():
            return
        if not self._closing:
            self._closing = True
            self._deaf()
            self._loop.call_later(LAST_SECONDS, self._abort)
        for connection in list(self._open):
            connection.close_if_idle()
        if not self._open:
            self._ended = True
            self._finished()

    def _linger_over(self) -> None:
        self._lingered = True
        self.check()

    def _abort(self) -> None:
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
        self.check()

    def _lost(self, connection: HttpConnection) -> None:
        self._open.discard(connection)
        self._on_lost(connection)
