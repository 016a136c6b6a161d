"""A web server for a few read-only pages: a handful of callers at once, each with a deadline.

The standard library's http.server would add 1 MiB to the agent and has neither limit.
"""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress

MOST_CALLERS = 4
LONGEST_HEAD_BYTES = 8192
CALLER_SECONDS = 2.0
RETRY_SECONDS = 0.1
HANG_UP_SECONDS = 1.0
METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"

log = logging.getLogger(__name__)


class PageServer:
    """Serves `pages`, by path, until it is closed."""

    def __init__(self, listener: socket.socket, pages: Mapping[str, Callable[[], bytes]]) -> None:
        self._listener = listener
        self._pages = pages
        self._places = threading.BoundedSemaphore(MOST_CALLERS)
        self._closing = False
        self._thread = threading.Thread(target=self._accept, name="pages", daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        return int(self._listener.getsockname()[1])

    def close(self) -> None:
        """Accepts no new callers; current ones keep their deadline."""
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
                    log.warning("pages: %s", error)
                    time.sleep(RETRY_SECONDS)  # out of file descriptors: do not spin
                continue
            if not self._places.acquire(blocking=False):
                connection.close()
                continue
            try:
                threading.Thread(target=self._serve, args=(connection,), name="page-caller", daemon=True).start()
            except RuntimeError as error:  # no more threads
                log.warning("pages: %s", error)
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
        path = rest.partition(b" ")[0].partition(b"?")[0].decode("latin-1")
        if not rest:
            return _response("400 Bad Request", b"malformed HTTP request\n")
        page = self._pages.get(path)
        if page is None:
            return _response("404 Not Found", f"unknown page; known: {', '.join(self._pages)}\n".encode())
        if method not in (b"GET", b"HEAD"):
            return _response("405 Method Not Allowed", b"only GET and HEAD are allowed\n")
        try:
            text = page()
        except Exception:
            log.exception("page %s failed", path)
            return _response("500 Internal Server Error", b"internal error; see the log\n")
        return _response("200 OK", text, METRICS_TYPE, send_body=method == b"GET")


def serve(address: tuple[str, int], pages: Mapping[str, Callable[[], bytes]]) -> PageServer:
    """Listens at the address; port 0 lets the kernel choose. OSError when it is in use."""
    family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    return PageServer(socket.create_server(address, family=family, backlog=16), pages)


def _head(connection: socket.socket) -> bytes:
    """Returns the bytes up to the empty line, or none where the deadline or the limit comes first."""
    deadline = time.monotonic() + CALLER_SECONDS
    head = b""
    while b"\r\n\r\n" not in head and len(head) < LONGEST_HEAD_BYTES:
        connection.settimeout(max(0.001, deadline - time.monotonic()))
        more = connection.recv(4096)
        if not more:
            break
        head += more
    connection.settimeout(CALLER_SECONDS)
    return head if b"\r\n\r\n" in head else b""


def _hang_up(connection: socket.socket) -> None:
    """Drains unread input first: closing with some left would discard the answer."""
    connection.shutdown(socket.SHUT_WR)
    connection.settimeout(HANG_UP_SECONDS)
    for _ in range(64):
        if not connection.recv(4096):
            return


def _response(status: str, body: bytes, kind: str = "text/plain; charset=utf-8", send_body: bool = True) -> bytes:
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    return head.encode() + (body if send_body else b"")
