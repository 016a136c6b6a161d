"""Keeps a batch of requests in flight at a model server: sends them together, and again once all are answered."""

from __future__ import annotations

import re
import selectors
import socket
import time
from types import TracebackType
from typing import Self

MOST_ANSWER_BYTES = 16 << 20
MOST_SECONDS = 60.0  # that one batch may take
_STATUS = re.compile(rb"HTTP/1\.[01] (\d{3})")
_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*(\d{1,9})[ \t]*(?:\r\n|$)", re.IGNORECASE)


class LoopFailed(Exception):
    """The server did not answer as it must; the message says how."""


class ClosedLoop:
    """One connection for each request of a batch."""

    def __init__(self, host: str, port: int, request: bytes, batch: int) -> None:
        self._address = (host, port)
        self._request = request
        self._batch = batch
        self._open: list[socket.socket] = []

    def __enter__(self) -> Self:
        try:
            for _ in range(self._batch):
                connection = socket.create_connection(self._address, timeout=MOST_SECONDS)
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._open.append(connection)
        except OSError as error:
            self.close()
            raise LoopFailed(f"{self._address[0]}:{self._address[1]} cannot be reached: {error}") from error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        for connection in self._open:
            connection.close()
        self._open = []

    def ask(self) -> float:
        """Sends one batch of requests; returns the seconds until the last answer was complete. Raises LoopFailed."""
        began = time.monotonic()
        try:
            for connection in self._open:
                connection.sendall(self._request)
            with selectors.DefaultSelector() as waiting:
                for connection in self._open:
                    waiting.register(connection, selectors.EVENT_READ, bytearray())
                self._read_all(waiting, began + MOST_SECONDS)
        except OSError as error:
            raise LoopFailed(f"the connection was lost: {error}") from error
        return time.monotonic() - began

    def _read_all(self, waiting: selectors.BaseSelector, deadline: float) -> None:
        while waiting.get_map():
            left = deadline - time.monotonic()
            ready = waiting.select(left) if left > 0 else []
            if not ready:
                raise LoopFailed(f"{len(waiting.get_map())} requests got no answer within {MOST_SECONDS:g} s")
            for key, _ in ready:
                connection = key.fileobj
                assert isinstance(connection, socket.socket)
                received = connection.recv(1 << 16)
                if not received:
                    raise LoopFailed("the server closed a connection instead of answering")
                key.data.extend(received)
                if _is_complete(key.data):
                    waiting.unregister(connection)


def _is_complete(answer: bytearray) -> bool:
    """Returns whether the answer is whole; raises LoopFailed if it is a refusal, or cannot be read."""
    end = answer.find(b"\r\n\r\n")
    if end < 0:
        if len(answer) > 1 << 16:
            raise LoopFailed("the answer has no end of its header")
        return False
    status, length = _STATUS.match(answer), _LENGTH.search(answer, 0, end + 2)
    if status is None or length is None or int(length[1]) > MOST_ANSWER_BYTES:
        raise LoopFailed("the answer is not HTTP/1.1 with a Content-Length")
    if len(answer) < end + 4 + int(length[1]):
        return False
    if not status[1].startswith(b"2"):
        text = bytes(answer[end + 4 : end + 204]).decode(errors="replace")
        raise LoopFailed(f"the server answered {status[1].decode()}: {text}")
    return True
