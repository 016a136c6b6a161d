"""How somebody on the machine asks the running agent: one JSON line in, one out, over a socket in its folder.

Only the agent's own user can open the folder, so whoever reaches the socket may ask for all that it can do.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from agents.host.sockets import short_name

SOCKET = "agent.sock"
LONGEST_LINE = 64 * 1024
PATIENCE_SECONDS = 10.0
LINE_SECONDS = 2.0  # for a question to come whole: the next caller waits meanwhile

log = logging.getLogger(__name__)

Answers = Mapping[str, Callable[[Mapping[str, Any]], Any]]


class NotRunning(Exception):
    """No agent answers in that folder."""


class LocalServer:
    """Answers one caller after the other."""

    def __init__(self, folder: Path, answers: Answers) -> None:
        self._path = folder / SOCKET
        self._answers = answers
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)

    def start(self) -> None:
        self._path.unlink(missing_ok=True)
        before = os.umask(0o177)
        try:
            with short_name(self._path) as name:
                self._listener.bind(name)
        finally:
            os.umask(before)
        self._listener.listen(8)
        threading.Thread(target=self._serve, name="local", daemon=True).start()

    def stop(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._path.unlink(missing_ok=True)

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with connection, contextlib.suppress(OSError):
                asked = _line(connection, LONGEST_LINE, LINE_SECONDS)
                connection.settimeout(PATIENCE_SECONDS)
                connection.sendall(self._answer(asked) + b"\n")

    def _answer(self, line: bytes) -> bytes:
        try:
            asked = msgspec.json.decode(line, type=dict[str, Any])
            answer = self._answers[asked.pop("verb")](asked)
            return msgspec.json.encode({"answer": answer})
        except KeyError as error:
            return msgspec.json.encode({"error": f"unknown verb {error}; known are {', '.join(self._answers)}"})
        except (ValueError, TypeError, msgspec.MsgspecError) as error:
            return msgspec.json.encode({"error": str(error)})
        except Exception as error:
            log.exception("a local question failed")
            return msgspec.json.encode({"error": f"{type(error).__name__}: {error}"})


def ask(folder: Path, verb: str, **fields: Any) -> Any:
    """The running agent's answer; ValueError with its words when it refuses."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(PATIENCE_SECONDS)
        try:
            with short_name(folder / SOCKET) as name:
                connection.connect(name)
            connection.sendall(msgspec.json.encode({"verb": verb, **fields}) + b"\n")
            said = msgspec.json.decode(_line(connection, 1 << 24, PATIENCE_SECONDS))
        except (OSError, msgspec.DecodeError) as error:
            raise NotRunning(f"no agent answers in {folder} ({error}); is `gpuwright agent run` up?") from error
    if "error" in said:
        raise ValueError(said["error"])
    return said["answer"]


def _line(connection: socket.socket, longest: int, seconds: float) -> bytes:
    found = bytearray()
    until = time.monotonic() + seconds
    while b"\n" not in found:
        connection.settimeout(max(0.001, until - time.monotonic()))
        part = connection.recv(65536)
        if not part or len(found) > longest:
            break
        found += part
    return bytes(found).partition(b"\n")[0]
