"""Clients that send requests through Ray's own proxy, one after the other each, and count what failed."""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from tests.ray_serve.site import SERVE_PORT
from tests.support.patience import patience


@dataclass(slots=True)
class Asked:
    """What clients have got until now."""

    answered: int = 0
    failures: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def note(self, failure: str) -> None:
        with self.lock:
            self.answered += not failure
            if failure:
                self.failures.append(failure)


@contextmanager
def asking(clients: int, pause_seconds: float) -> Iterator[Asked]:
    """Asks meanwhile, each client on a connection of its own."""
    asked, ended = Asked(), threading.Event()
    threads = [threading.Thread(target=_ask, args=(asked, ended, pause_seconds)) for _ in range(clients)]
    for thread in threads:
        thread.start()
    try:
        yield asked
    finally:
        ended.set()
        for thread in threads:
            thread.join()


def _ask(asked: Asked, ended: threading.Event, pause_seconds: float) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", SERVE_PORT, timeout=patience())
    while not ended.is_set():
        try:
            connection.request("GET", "/")
            answer = connection.getresponse()
            text = answer.read()
            asked.note("" if (answer.status, text) == (200, b"served") else f"{answer.status} {text[:100]!r}")
        except (OSError, http.client.HTTPException) as error:
            asked.note(repr(error))
            connection.close()
        time.sleep(pause_seconds)
    connection.close()
