"""The simulated driver's only thread: it waits for sockets and timers, and never for a peer."""

from __future__ import annotations

import heapq
import itertools
import selectors
import socket
import time
from collections.abc import Callable

from agents.devices.simulated.peer import Peer

PAUSE_SECONDS = 0.2  # of a listener while no file descriptors are left


class Loop:
    """Calls everything that is due. `clock` is monotonic."""

    def __init__(self) -> None:
        self.clock = time.monotonic
        self.running = True
        self._selector = selectors.DefaultSelector()
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._serial = itertools.count()

    def run(self) -> None:
        while self.running:
            wait = max(0.0, self._due[0][0] - self.clock()) if self._due else None
            for key, _ in self._selector.select(wait):
                key.data()
            while self._due and self._due[0][0] <= self.clock():
                heapq.heappop(self._due)[2]()

    def after(self, seconds: float, call: Callable[[], None]) -> None:
        heapq.heappush(self._due, (self.clock() + seconds, next(self._serial), call))

    def welcome(self, listener: socket.socket, meet: Callable[[socket.socket], None]) -> None:
        """Accepts connections and hands each to `meet`."""
        listener.setblocking(False)

        def accept() -> None:
            try:
                connection, _ = listener.accept()
            except BlockingIOError:
                return
            except OSError:  # no file descriptors left: it would be ready again at once
                self.forget(listener)
                self.after(PAUSE_SECONDS, lambda: self._listen_again(listener, accept))
                return
            meet(connection)

        self._selector.register(listener, selectors.EVENT_READ, accept)

    def attend(self, peer: Peer) -> None:
        self._selector.register(peer.connection, selectors.EVENT_READ, peer.readable)

    def forget(self, watched: socket.socket) -> None:
        if watched.fileno() >= 0 and watched in self._selector.get_map():
            self._selector.unregister(watched)

    def _listen_again(self, listener: socket.socket, accept: Callable[[], None]) -> None:
        if listener.fileno() >= 0:
            self._selector.register(listener, selectors.EVENT_READ, accept)
