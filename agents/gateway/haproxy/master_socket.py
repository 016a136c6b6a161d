"""Talks to HAProxy's master socket, which reaches every process of it, including old ones after a reload."""

from __future__ import annotations

import socket
import time
from pathlib import Path

from agents.gateway.haproxy import parsing
from agents.gateway.haproxy.parsing import HaproxyProcess
from agents.host.wire import connect

MOST_BYTES = 64 << 20


class HaproxyAway(Exception):
    """HAProxy does not answer."""


class WorkerGone(Exception):
    """This HAProxy process has ended."""


class MasterSocket:
    """Opens one connection for each command, so that the end of the stream ends the answer and nothing is mixed up."""

    def __init__(self, path: Path, seconds: float = 5.0) -> None:
        self.path = path
        self.seconds = seconds

    def ask(self, command: str, worker: HaproxyProcess | None = None) -> str:
        """Returns the answer without its closing empty line."""
        if "\n" in command or ";" in command:
            raise ValueError(f"not one command: {command!r}")
        line = f"@!{worker.pid} {command}\n" if worker else f"{command}\n"
        deadline = time.monotonic() + self.seconds
        pieces, size = [], 0
        try:
            with socket.socket(socket.AF_UNIX) as connection:
                connection.settimeout(self.seconds)
                connect(connection, self.path)
                connection.sendall(line.encode())
                connection.shutdown(socket.SHUT_WR)
                while piece := connection.recv(1 << 16):
                    pieces.append(piece)
                    size += len(piece)
                    if size > MOST_BYTES or time.monotonic() > deadline:
                        raise HaproxyAway(f"the answer to {command!r} does not end")
        except OSError as error:
            raise HaproxyAway(f"{self.path}: {error}") from error
        text = b"".join(pieces).decode("utf-8", "replace")
        if worker and text.startswith("Can't find the target"):
            raise WorkerGone(f"process {worker.pid} has ended")
        # Only lists end with an empty line.
        whole = "\n\n" if worker and command.startswith("show ") else "\n"
        if command != "reload" and not (text.endswith(whole) or text == "\n"):
            # the process ended or was reloaded during the command
            if worker:
                raise WorkerGone(f"process {worker.pid} closed the connection")
            raise HaproxyAway("the master closed the connection")
        return text.strip("\n")

    def workers(self) -> tuple[HaproxyProcess, ...]:
        """Returns HAProxy's processes, those that accept connections first; raises HaproxyAway if none does."""
        found = parsing.parse_processes(self.ask("show proc"))
        if all(worker.old for worker in found):
            raise HaproxyAway("no HAProxy process accepts connections")
        return tuple(sorted(found, key=lambda worker: (worker.old, worker.pid)))
