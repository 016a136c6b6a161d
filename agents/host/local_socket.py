"""Lets an operator ask the running agent: one JSON line in, one out, over a socket in its folder.

Only the agent's own user can open the folder, so every caller may use every verb.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from agents.host.wire import connect, listen, read_line

SOCKET = "agent.sock"
LONGEST_QUESTION_BYTES = 64 * 1024
LONGEST_ANSWER_BYTES = 1 << 24
BACKLOG = 8
PATIENCE_SECONDS = 10.0
LINE_SECONDS = 2.0  # to receive a whole question; the next caller waits meanwhile

log = logging.getLogger(__name__)

Answers = Mapping[str, Callable[[Mapping[str, Any]], Any]]


class NotRunning(Exception):
    """No agent answers in the folder."""


class LocalServer:
    """Answers callers one after the other."""

    def __init__(self, folder: Path, answers: Answers) -> None:
        self._path = folder / SOCKET
        self._answers = answers
        self._listener: socket.socket | None = None

    def start(self) -> None:
        self._listener = listen(self._path, BACKLOG)
        threading.Thread(target=self._serve, args=(self._listener,), name="local", daemon=True).start()

    def stop(self) -> None:
        if self._listener is not None:
            with contextlib.suppress(OSError):
                self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
        self._path.unlink(missing_ok=True)

    def _serve(self, listener: socket.socket) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection, contextlib.suppress(OSError):
                question = read_line(connection, LONGEST_QUESTION_BYTES, time.monotonic() + LINE_SECONDS)
                connection.settimeout(PATIENCE_SECONDS)
                connection.sendall(self._answer(question) + b"\n")

    def _answer(self, line: bytes) -> bytes:
        try:
            question = msgspec.json.decode(line, type=dict[str, Any])
            answer = self._answers[question.pop("verb")](question)
            return msgspec.json.encode({"answer": answer})
        except KeyError as error:
            return msgspec.json.encode({"error": f"unknown verb {error}; it must be one of {', '.join(self._answers)}"})
        except (ValueError, TypeError, msgspec.MsgspecError) as error:
            return msgspec.json.encode({"error": str(error)})
        except Exception as error:
            log.exception("a local request failed")
            return msgspec.json.encode({"error": f"{type(error).__name__}: {error}"})


def ask(folder: Path, verb: str, **fields: Any) -> Any:
    """Returns the running agent's answer; raises ValueError with the agent's message if it refuses."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(PATIENCE_SECONDS)
        try:
            connect(connection, folder / SOCKET)
            connection.sendall(msgspec.json.encode({"verb": verb, **fields}) + b"\n")
            reply = msgspec.json.decode(
                read_line(connection, LONGEST_ANSWER_BYTES, time.monotonic() + PATIENCE_SECONDS)
            )
        except (OSError, msgspec.DecodeError) as error:
            raise NotRunning(f"no agent answers in {folder} ({error}); is `gpuwright agent run` up?") from error
    if "error" in reply:
        raise ValueError(reply["error"])
    return reply["answer"]
