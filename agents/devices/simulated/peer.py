"""Lines over Unix sockets, never waited for: what a peer sends is bounded, and one that does not read is left."""

from __future__ import annotations

import socket
from collections.abc import Callable

BACKLOG = 128


class Peer:
    """One connection, and what `line` does with each line from it. `gone` is called once, when it is over."""

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
        """Take what is there, once: a peer that floods gets no more turns than another."""
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
        """Send, or leave a peer that does not read."""
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
