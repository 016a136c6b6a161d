"""A web server of one page: GET /metrics, a handful of callers at once, each with a deadline."""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress

MOST_CALLERS = 4
MOST_BYTES = 8192  # of a request's head
CALLER_SECONDS = 2.0
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

log = logging.getLogger(__name__)


class Answering:
    """Answers until it is closed."""

    def __init__(self, listener: socket.socket, render: Callable[[], bytes]) -> None:
        self._listener = listener
        self._render = render
        self._places = threading.BoundedSemaphore(MOST_CALLERS)
        self._closing = False
        self._thread = threading.Thread(target=self._accept, name="metrics", daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        return int(self._listener.getsockname()[1])

    def close(self) -> None:
        """No new callers; those that are being answered have their deadline."""
        self._closing = True
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes `accept`, which closing alone does not
        self._thread.join(CALLER_SECONDS)
        self._listener.close()

    def _accept(self) -> None:
        while not self._closing:
            try:
                connection, _ = self._listener.accept()
            except OSError as error:
                if not self._closing:
                    log.warning("metrics: %s", error)
                    time.sleep(0.1)  # out of file descriptors: not as fast as it goes
                continue
            if not self._places.acquire(blocking=False):
                connection.close()
                continue
            try:
                threading.Thread(target=self._serve, args=(connection,), name="metrics-caller", daemon=True).start()
            except RuntimeError as error:  # no more threads
                log.warning("metrics: %s", error)
                self._places.release()
                connection.close()

    def _serve(self, connection: socket.socket) -> None:
        try:
            with connection, suppress(OSError):
                connection.sendall(self._answer(_head(connection)))
                _hang_up(connection)
        finally:
            self._places.release()

    def _answer(self, head: bytes) -> bytes:
        method, _, rest = head.partition(b"\r\n")[0].partition(b" ")
        path = rest.partition(b" ")[0].partition(b"?")[0]
        if not rest:
            return _response("400 Bad Request", b"this is no HTTP request\n")
        if path != b"/metrics":
            return _response("404 Not Found", b"there is only /metrics here\n")
        if method not in (b"GET", b"HEAD"):
            return _response("405 Method Not Allowed", b"GET it\n")
        try:
            text = self._render()
        except Exception:
            log.exception("metrics could not be made")
            return _response("500 Internal Server Error", b"the agent's log says why\n")
        return _response("200 OK", text, CONTENT_TYPE, send_body=method == b"GET")


def serve(address: tuple[str, int], render: Callable[[], bytes]) -> Answering:
    """Listen here; port 0 lets the kernel choose. OSError when the address is taken."""
    family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    return Answering(socket.create_server(address, family=family, backlog=16), render)


def _head(connection: socket.socket) -> bytes:
    """What was said up to the empty line, the deadline or the limit."""
    deadline = time.monotonic() + CALLER_SECONDS
    head = b""
    while b"\r\n\r\n" not in head and len(head) < MOST_BYTES:
        connection.settimeout(max(0.001, deadline - time.monotonic()))
        more = connection.recv(4096)
        if not more:
            break
        head += more
    connection.settimeout(CALLER_SECONDS)
    return head if b"\r\n\r\n" in head else b""


def _hang_up(connection: socket.socket) -> None:
    """Let what was not read go by: closing on it would take the answer away with it."""
    connection.shutdown(socket.SHUT_WR)
    connection.settimeout(1.0)
    for _ in range(64):
        if not connection.recv(4096):
            return


def _response(status: str, body: bytes, kind: str = "text/plain; charset=utf-8", send_body: bool = True) -> bytes:
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    return head.encode() + (body if send_body else b"")
