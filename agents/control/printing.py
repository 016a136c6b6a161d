"""Answers requests for what instances print. A request for more waits here until there is more, or its time is up."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence

import msgspec

from agents.contract.logs import LogText, LogWanted
from agents.talk.link import Link, LinkError

ANSWER_SECONDS = 10.0
LOOK_SECONDS = 0.25  # between two looks for more
GONE = (403, 404, 409, 422)  # asking again would not change the answer

log = logging.getLogger(__name__)


class Printing:
    """Keeps the requests that are not answered yet; an answer that cannot be sent is dropped: readers ask again."""

    def __init__(self, read: Callable[[LogWanted], LogText], node: str) -> None:
        self._read = read
        self._node = node
        self._open: dict[str, tuple[float, LogWanted]] = {}
        self._lock = threading.Lock()
        self._wanted = threading.Event()
        self._stopping = threading.Event()

    def offer(self, wanted: Sequence[LogWanted]) -> None:
        """Takes requests for logs."""
        now = time.monotonic()
        with self._lock:
            self._open |= {request.id: (now + request.seconds, request) for request in wanted}
        self._wanted.set()

    def stop(self) -> None:
        self._stopping.set()
        self._wanted.set()

    def work(self, link: Link) -> None:
        """Answers until no request is open. Raises LinkError."""
        self._wanted.wait()
        while not self._stopping.is_set():
            with self._lock:
                waiting = list(self._open.values())
                if not waiting:
                    self._wanted.clear()
                    return
            for until, request in waiting:
                text = self._read(request)
                if text.text or not request.begins or time.monotonic() >= until:
                    with self._lock:
                        self._open.pop(request.id, None)
                    self._send(link, text)
            self._stopping.wait(LOOK_SECONDS)

    def _send(self, link: Link, text: LogText) -> None:
        try:
            link.request("POST", f"/api/v1/nodes/{self._node}/logs", msgspec.json.encode(text), ANSWER_SECONDS)
        except LinkError as error:
            if error.status not in GONE:
                raise
            log.warning("the control plane does not take what an instance printed: %s", error)
