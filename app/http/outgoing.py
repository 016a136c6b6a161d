"""A request of ours to another server: one answer, of so many bytes, by a moment that no slow dripping moves."""

from __future__ import annotations

import http.client
import socket
import threading
from collections.abc import Mapping
from contextlib import suppress


def exchange(
    connection: http.client.HTTPConnection, method: str, target: str, body: bytes | None,
    headers: Mapping[str, str], *, seconds: float, most_bytes: int,
) -> tuple[int, bytes]:  # fmt: skip
    """Returns status and body, which is cut one byte after `most_bytes`; TimeoutError after `seconds`.

    The connection is closed. No redirect is followed.
    """
    is_late = threading.Event()

    def cut_off() -> None:
        is_late.set()
        if connection.sock:
            with suppress(OSError):  # it has just ended
                connection.sock.shutdown(socket.SHUT_RDWR)

    watch = threading.Timer(seconds, cut_off)
    watch.daemon = True
    watch.start()
    try:
        connection.connect()
        if not is_late.is_set():
            connection.request(method, target, body, {**headers})
            answer = connection.getresponse()
            content = answer.read(most_bytes + 1)
        if is_late.is_set():  # what came by then looks whole
            raise TimeoutError
    except (OSError, http.client.HTTPException):
        if is_late.is_set():
            raise TimeoutError from None
        raise
    finally:
        watch.cancel()
        connection.close()
    return answer.status, content
