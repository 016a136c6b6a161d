"""A watcher that reconnects at random, on any replica, and remembers every event that it received."""

from __future__ import annotations

import http.client
import random
import socket
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.support.patience import patience

RECONNECT_SECONDS = 0.05


@dataclass
class Follower:
    """Follows from version 0 in a thread of its own until `stop()`; `seen` holds (version, action) as they came.

    `patience_events` is how many events it takes, on average, before it cuts its connection; 0 never does.
    """

    ports: Sequence[int]
    token: str
    seed: int
    patience_events: int = 0
    query: str = ""
    seen: list[tuple[int, str]] = field(default_factory=list)
    arrived: dict[int, float] = field(default_factory=dict)  # version: when, by the monotonic clock
    connections: int = 0
    refused: list[int] = field(default_factory=list)  # statuses other than 200 and 503
    start: int = 0

    def __post_init__(self) -> None:
        self._rng = random.Random(self.seed)
        self._stopping = threading.Event()
        self._socket: socket.socket | None = None
        self.listening = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"follower-{self.seed}", daemon=True)
        self._thread.start()

    @property
    def last(self) -> int:
        return self.seen[-1][0] if self.seen else self.start

    def stop(self) -> None:
        self._stopping.set()
        self.cut()
        self._thread.join(patience())
        assert not self._thread.is_alive()

    def cut(self) -> None:
        """The connection ends in the middle of whatever it was saying."""
        open_socket = self._socket
        if open_socket is not None:
            try:
                open_socket.shutdown(socket.SHUT_RDWR)
            except OSError:
                return  # it was cut already

    def _run(self) -> None:
        while not self._stopping.is_set():
            connection = http.client.HTTPConnection("127.0.0.1", self._rng.choice(self.ports), timeout=patience())
            try:
                self._follow(connection)
            except (OSError, http.client.HTTPException, ValueError):
                time.sleep(RECONNECT_SECONDS)
            finally:
                self._socket = None
                connection.close()

    def _follow(self, connection: http.client.HTTPConnection) -> None:
        headers = {"Authorization": f"Bearer {self.token}", "Last-Event-ID": str(self.last)}
        connection.connect()
        self._socket = connection.sock
        connection.request("GET", f"/api/v1/watch?resourceVersion={self.start}{self.query}", headers=headers)
        response = connection.getresponse()
        if response.status != 200:
            if response.status != 503:
                self.refused.append(response.status)
            time.sleep(RECONNECT_SECONDS)
            return
        self.connections += 1
        takes = self._rng.randint(1, 2 * self.patience_events) if self.patience_events else -1
        event: dict[str, str] = {}
        while takes and (line := response.readline().decode()):
            if line.startswith(":"):
                self.listening.set()
            elif line == "\n":
                if "data" in event:  # an event counts once it is whole
                    version = int(event["id"])
                    self.arrived.setdefault(version, time.monotonic())
                    self.seen.append((version, event["event"]))
                    takes -= 1
                event = {}
            elif line.endswith("\n"):
                name, _, value = line.rstrip("\n").partition(": ")
                event[name] = value
