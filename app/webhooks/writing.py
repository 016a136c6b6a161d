"""Writes a line to a listed file, to a socket of this machine, or to a receiver of syslog; it is there, or it fails."""

from __future__ import annotations

import fcntl
import os
import select
import socket
import stat
import time
from contextlib import suppress
from urllib.parse import urlsplit

from app.http.posting import WHOLE_SECONDS, NotDelivered, explain, find_address
from app.webhooks.hooks import Webhook

STDOUT = "/dev/stdout"
OPENED = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK | os.O_NOCTTY  # a pipe without a reader is refused


def write(hook: Webhook, line: bytes) -> None:
    """Delivers a line, or raises NotDelivered."""
    parts = urlsplit(hook.url)
    try:
        if parts.scheme == "file":
            _append(parts.path, line)
        elif parts.scheme == "unix":
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as local:
                local.settimeout(WHOLE_SECONDS)
                local.connect(parts.path)
                local.send(line)
        else:
            assert parts.port is not None
            address = find_address(hook.host, parts.port, hook.on_this_machine)
            (_send_datagram if parts.scheme == "udp" else _send_frame)(address, parts.port, line)
    except OSError as error:
        raise NotDelivered(explain(error)) from None


def _append(path: str, line: bytes) -> None:
    """Appends to a file, which is opened each time, so that it may be rotated; a line is whole or not there."""
    # Standard output is not opened: in a container it may belong to root.
    file = os.dup(1) if path == STDOUT else os.open(path, OPENED, 0o640)
    try:
        is_file = stat.S_ISREG(os.fstat(file).st_mode)  # standard output may be a pipe
        if is_file:
            _lock(file)
        elif not select.select([], [file], [], WHOLE_SECONDS)[1]:
            raise NotDelivered("nothing reads the pipe, and it is full")
        size = os.fstat(file).st_size
        try:
            written = os.write(file, line)
            while written < len(line):
                written += os.write(file, line[written:])
            if is_file:
                os.fsync(file)
        except OSError:
            if is_file:
                os.ftruncate(file, size)
            raise
    finally:
        os.close(file)


def _lock(file: int) -> None:
    """Waits for other servers that write a line; a lock that stays raises BlockingIOError."""
    for pause in (0.01, 0.1, 0.5, 1.0, 2.0):
        with suppress(BlockingIOError):
            return fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        time.sleep(pause)
    return fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _send_datagram(address: str, port: int, line: bytes) -> None:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as sender:
        sender.connect((address, port))
        sender.send(line)


def _send_frame(address: str, port: int, line: bytes) -> None:
    """Sends by TCP with the length before the message (RFC 6587), and waits until the receiver has read its end.

    Syslog has no answers: a receiver that closes the connection after us has read all; one that dies has not.
    """
    with socket.create_connection((address, port), timeout=WHOLE_SECONDS) as connection:
        connection.sendall(b"%d %s" % (len(line), line))
        connection.shutdown(socket.SHUT_WR)
        try:
            if connection.recv(1):
                raise NotDelivered("it answers, which no receiver of syslog does")
        except TimeoutError:
            raise NotDelivered("it took the message, and did not close the connection after us") from None
