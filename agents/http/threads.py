"""A server of few callers, each with a thread, a deadline for each request, and a place while there is room.

Answers in threads may take their time, and need no asyncio, which would add megabytes to the agent.
"""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from agents.http.messages import JSON, BadRequest, HttpRequest, RequestReader, format_answer

if TYPE_CHECKING:
    import ssl  # 4 MB, which servers without TLS do without

PIECE_BYTES = 65536
RETRY_SECONDS = 0.1
HANG_UP_SECONDS = 1.0

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ServerLimits:
    """Limits a server's callers; `seconds` those of a request's arrival, of its answer's leaving, and of idleness."""

    connections: int
    seconds: float
    body_bytes: int


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """The answer to one request."""

    status: int
    body: bytes
    kind: str = JSON
    more: str = ""  # header lines
    close: bool = False  # the connection, afterwards


class ThreadServer:
    """Serves the callers of a listening socket until it is closed. `refuse` words the answer to a malformed request."""

    def __init__(
        self,
        listener: socket.socket,
        answer: Callable[[HttpRequest], HttpAnswer],
        refuse: Callable[[BadRequest], HttpAnswer],
        limits: ServerLimits,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.limits = limits
        self.listener = listener
        self._answer = answer
        self._refuse = refuse
        self._tls = tls
        self._open: dict[socket.socket, float] = {}  # since when
        self._closing = False
        self._thread = threading.Thread(target=self._accept, name="http", daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        return int(self.listener.getsockname()[1])

    def close(self) -> None:
        """Accepts no new callers; current ones keep their deadline."""
        self._closing = True
        with suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)  # wakes `accept`, which closing alone does not
        self._thread.join(self.limits.seconds)
        self.listener.close()

    def _accept(self) -> None:
        while not self._closing:
            try:
                connection, _ = self.listener.accept()
            except OSError as error:
                if not self._closing:
                    log.warning("http: %s", error)
                    time.sleep(RETRY_SECONDS)  # out of file descriptors: do not spin
                continue
            if not self._has_room():
                connection.close()
                continue
            try:
                if self._tls:
                    connection = self._tls.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)
                self._open[connection] = time.monotonic()
                threading.Thread(target=self._serve, args=(connection,), name="http-caller", daemon=True).start()
            except (OSError, RuntimeError) as error:  # gone already, or no more threads
                log.warning("http: %s", error)
                self._open.pop(connection, None)
                connection.close()

    def _has_room(self) -> bool:
        """Returns whether another caller has a place; if not, hangs up on the oldest one if it may have been slow."""
        open_since = dict(self._open)
        if len(open_since) < self.limits.connections:
            return True
        oldest = min(open_since, key=open_since.__getitem__)
        if time.monotonic() - open_since[oldest] > self.limits.seconds:
            with suppress(OSError):
                oldest.shutdown(socket.SHUT_RDWR)
        return False

    def _serve(self, connection: socket.socket) -> None:
        try:
            with connection, suppress(OSError):
                if self._tls:
                    connection.settimeout(self.limits.seconds)
                    cast("ssl.SSLSocket", connection).do_handshake()
                reader = RequestReader(self.limits.body_bytes)
                while self._answer_next(connection, reader):
                    pass
                _hang_up(connection)
        finally:
            self._open.pop(connection, None)

    def _answer_next(self, connection: socket.socket, reader: RequestReader) -> bool:
        """Answers the next request; returns whether another one may follow."""
        is_head = False
        try:
            request = _receive(connection, reader, time.monotonic() + self.limits.seconds)
            if request is None:
                return False
            is_head = request.method == "HEAD"
            answer = self._answer(request)
            keep = request.keep and not answer.close
        except BadRequest as bad:
            answer, keep = self._refuse(bad), False
        connection.settimeout(self.limits.seconds)
        text = format_answer(answer.status, answer.body, answer.kind, answer.more, close=not keep, is_head=is_head)
        connection.sendall(text)
        return keep


def _receive(connection: socket.socket, reader: RequestReader, deadline: float) -> HttpRequest | None:
    """Returns the next request, or None where the caller has gone or says nothing."""
    while (request := reader.read(connection.sendall)) is None:
        connection.settimeout(max(0.001, deadline - time.monotonic()))
        try:
            data = connection.recv(PIECE_BYTES)
        except TimeoutError:
            data = b""
        if not data and reader.is_partial:
            raise BadRequest(400, "the request did not arrive completely in time")
        if not data:
            return None
        reader.buffer += data
    return request


def _hang_up(connection: socket.socket) -> None:
    """Drains unread input first: closing with some left would discard the answer."""
    deadline = time.monotonic() + HANG_UP_SECONDS
    connection.shutdown(socket.SHUT_WR)
    while (left := deadline - time.monotonic()) > 0:
        connection.settimeout(left)
        if not connection.recv(PIECE_BYTES):
            return
