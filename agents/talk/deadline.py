"""One HTTP request whose answer is whole by a deadline and no larger than it may be, however the other side behaves."""

from __future__ import annotations

import http.client
import io
import socket
import time
from collections.abc import Mapping
from functools import partial
from typing import Any

MOST_BYTES = 16 << 20  # an assignment of 4,096 instances has some 4 MB


def exchange(
    connection: http.client.HTTPConnection,
    method: str,
    path: str,
    body: bytes | None,
    headers: Mapping[str, str],
    seconds: float,
) -> tuple[int, http.client.HTTPMessage, bytes]:
    """Raises OSError or HTTPException; the connection is then of no more use."""
    deadline = time.monotonic() + seconds
    if connection.sock is None:
        connection.connect()
    connection.sock.settimeout(seconds)
    connection.response_class = partial(_Timely, deadline)  # type: ignore[assignment]
    connection.request(method, path, body, headers)
    answer = connection.getresponse()
    text = answer.read(MOST_BYTES + 1)
    if len(text) > MOST_BYTES:
        raise http.client.HTTPException(f"the answer has more than {MOST_BYTES} bytes")
    if answer.length:
        raise http.client.IncompleteRead(b"", answer.length)
    return answer.status, answer.headers, text


def printable(text: str) -> str:
    """The other side's words, fit for a line of log and for a terminal."""
    return "".join(letter if letter.isprintable() else " " for letter in text)


class _Timely(http.client.HTTPResponse):
    """A socket's own timeout is for each piece, and an answer may come in a million of them."""

    def __init__(self, deadline: float, sock: socket.socket, *args: Any, **named: Any) -> None:
        source: Any = _Until(sock, deadline)  # all that HTTPResponse asks of a socket is makefile
        super().__init__(source, *args, **named)


class _Until(io.RawIOBase):
    def __init__(self, connection: socket.socket, deadline: float) -> None:
        self._connection = connection
        self._pieces = connection.makefile("rb", buffering=0)  # keeps it open until the answer was read
        self._deadline = deadline

    def makefile(self, _mode: str) -> io.BufferedReader:
        return io.BufferedReader(self, 65536)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("no whole answer in time")
        self._connection.settimeout(left)
        return self._pieces.readinto(buffer)

    def close(self) -> None:
        self._pieces.close()
        super().close()
