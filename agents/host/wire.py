"""Unix sockets that carry lines: listening, connecting and reading, each with a limit or a deadline."""

from __future__ import annotations

import os
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

LONGEST_PATH_BYTES = 107
RETRY_SECONDS = 0.01


@contextmanager
def short_name(path: Path) -> Iterator[str]:
    """Yields a name to bind or connect to: a path longer than an address goes through its folder's handle."""
    if len(os.fsencode(path)) <= LONGEST_PATH_BYTES:
        yield str(path)
        return
    handle = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{handle}/{path.name}"
    finally:
        os.close(handle)


def listen(path: Path, backlog: int) -> socket.socket:
    """Listens where only this user can connect, from the first moment."""
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    mask = os.umask(0o177)
    try:
        with short_name(path) as name:
            listener.bind(name)
        listener.listen(backlog)
    except BaseException:
        listener.close()
        raise
    finally:
        os.umask(mask)
    return listener


def connect(connection: socket.socket, path: Path) -> None:
    """Connects within the socket's timeout. A full queue answers EAGAIN at once, so this tries again."""
    deadline = time.monotonic() + (connection.gettimeout() or 0.0)
    with short_name(path) as name:
        while True:
            try:
                connection.connect(name)
                return
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    raise
                time.sleep(RETRY_SECONDS)


def read_line(connection: socket.socket, longest_bytes: int, deadline: float) -> bytes:
    """Returns the first line without its newline; only its beginning where it is longer than the limit.

    ConnectionResetError when the peer closes first, TimeoutError when `deadline`, on the monotonic clock, passes first.
    """
    received = bytearray()
    while b"\n" not in received and len(received) <= longest_bytes:
        connection.settimeout(max(0.001, deadline - time.monotonic()))
        part = connection.recv(65536)
        if not part:
            raise ConnectionResetError("the peer closed the connection")
        received += part
    return bytes(received).partition(b"\n")[0]


def peer_pid(connection: socket.socket) -> int:
    """Returns the peer's PID in this namespace, as the kernel knows it."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    pid, _, _ = struct.unpack("3i", credentials)
    return int(pid)
