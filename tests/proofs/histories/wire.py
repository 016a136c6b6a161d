"""A wire between two processes that can be cut in one direction, and reset."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from typing import Literal

Direction = Literal["there", "back"]


class Wire:
    """Listens on a port of its own, and passes on what comes to `port`. What a cut direction holds comes later."""

    def __init__(self, port: int) -> None:
        self._to = port
        self._passes = {"there": threading.Event(), "back": threading.Event()}
        self._open: set[socket.socket] = set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.mend()
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self, direction: Direction) -> None:
        self._passes[direction].clear()

    def mend(self) -> None:
        for passes in self._passes.values():
            passes.set()

    def reset(self) -> None:
        """Ends every connection, with whatever is under way on it."""
        for end in list(self._open):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._listener.close()
        self.reset()
        self.mend()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            try:
                far = socket.create_connection(("127.0.0.1", self._to))
            except OSError:
                near.close()
                continue
            for end in (near, far):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._open |= {near, far}
            threading.Thread(target=self._carry, args=(near, far, "there"), daemon=True).start()
            threading.Thread(target=self._carry, args=(far, near, "back"), daemon=True).start()

    def _carry(self, source: socket.socket, target: socket.socket, direction: Direction) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                self._passes[direction].wait()
                target.sendall(data)
        with suppress(OSError):
            target.shutdown(socket.SHUT_WR)
        if direction == "back":  # the last of the two
            self._open -= {source, target}
            for end in (source, target):
                end.close()
