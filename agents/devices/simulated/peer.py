"""Lines over Unix sockets without waiting: input is bounded, and a peer that does not read is dropped."""

from __future__ import annotations

import socket
from collections.abc import Callable

BACKLOG_CONNECTIONS = 128


class Peer:
    """One connection; `line` is called with each line from it, and `gone` once when it ends."""

    def __init__(
        self, connection: socket.socket, longest: int, line: Callable[[bytes], None], gone: Callable[[], None]
    ) -> None:
        connection.setblocking(False)
        self.connection = connection
        self.open = True
        self._longest = longest
        self._line = line
        self._gone = gone
        self._rest = b""

    def readable(self) -> None:
        """Reads once, so that a peer that floods gets no more turns than another."""
        try:
            more = self.connection.recv(self._longest)
        except BlockingIOError:
            return
        except OSError:
            more = b""
        if not more:
            self.end()
            return
        *lines, self._rest = (self._rest + more).split(b"\n")
        for line in lines:
            if self.open:
                self._line(line)
        if len(self._rest) >= self._longest:
            self.end()

    def say(self, line: bytes) -> None:
        """Sends a line, or drops a peer that does not read."""
        if not self.open:
            return
        try:
            sent = self.connection.send(line + b"\n")
        except OSError:
            sent = 0
        if sent <= len(line):
            self.end()

    def end(self) -> None:
        if self.open:
            self.open = False
            self._gone()
            self.connection.close()
