"""Asks the root helper one question over one short connection, with one deadline."""

from __future__ import annotations

import socket
import time
from contextlib import suppress
from pathlib import Path

import msgspec

from agents.devices.privileged.wire import HelperReply, HelperRequest, encoder, replies
from agents.seams.device import DeviceError, Trouble

MOST_REPLY_BYTES = 4096


def ask(path: Path, seconds: float, uuid: str, request: HelperRequest) -> HelperReply:
    """Returns the reply if it is a success; everything else becomes a DeviceError of that device."""
    try:
        reply = replies.decode(_exchange(path, seconds, encoder.encode(request) + b"\n"))
    except TimeoutError as error:
        raise DeviceError(Trouble.TIMEOUT, uuid, f"the root helper at {path} does not answer") from error
    except OSError as error:
        raise DeviceError(
            Trouble.NO_PERMISSION, uuid, f"cannot reach the root helper at {path}: {error.strerror}"
        ) from error
    except msgspec.MsgspecError as error:
        raise DeviceError(Trouble.GARBLED, uuid, f"malformed answer of the root helper: {error}") from error
    if not reply.ok:
        known = reply.trouble in Trouble.__members__.values()
        raise DeviceError(Trouble(reply.trouble) if known else Trouble.UNKNOWN, uuid, reply.message)
    return reply


def _exchange(path: Path, seconds: float, line: bytes) -> bytes:
    """Returns the answer. A flooded helper may hang up without one; then the question is repeated."""
    deadline = time.monotonic() + seconds
    while True:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC) as connection:
            connection.settimeout(seconds)
            reply = b""
            with suppress(BlockingIOError, BrokenPipeError, ConnectionResetError):
                connection.connect(str(path))  # BlockingIOError means that the queue is full
                reply = _spoken(connection, line)
        if reply:
            return reply
        if time.monotonic() >= deadline:
            raise TimeoutError
        time.sleep(0.02)


def _spoken(connection: socket.socket, line: bytes) -> bytes:
    with suppress(BrokenPipeError, ConnectionResetError):  # refused before it was read; the answer is there already
        connection.sendall(line)
    reply = b""
    while len(reply) <= MOST_REPLY_BYTES and not reply.endswith(b"\n"):
        more = connection.recv(MOST_REPLY_BYTES)
        if not more:
            break
        reply += more
    return reply
