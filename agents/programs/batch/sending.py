"""Sends requests to a model server at low priority: at most so many at once, and fewer while it turns requests away.

An answer of 429 or 503, or none at all, means that the server has better things to do: half as many are sent at once
from then on, after a pause, and one more again after each round of good answers.
"""

from __future__ import annotations

import http.client
import json
import random
import re
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

BUSY = (429, 502, 503, 504)  # try again later; anything else is the answer
LONGEST_PAUSE_SECONDS = 30.0
FIRST_PAUSE_SECONDS = 0.1
MOST_ANSWER_BYTES = 64 << 20


class ServerBusy(Exception):
    """The server did not take a request; `seconds` is what it asks to wait."""

    def __init__(self, why: str, seconds: float = 0.0) -> None:
        super().__init__(why)
        self.seconds = seconds


def url_fault(url: str) -> str:
    """Returns what is wrong with the address of a model server; empty if nothing is."""
    try:
        parts = urlsplit(url)
        is_known = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_known = False
    return "" if is_known else f"{url!r} is no address of a server; it must look like http://127.0.0.1:8080/v1/x"


class BatchConnection:
    """One connection to the model server, for one thread."""

    def __init__(self, url: str, seconds: float) -> None:
        parts = urlsplit(url)
        is_safe = parts.scheme == "https"
        self._kind = http.client.HTTPSConnection if is_safe else http.client.HTTPConnection
        self._address = (parts.hostname or "localhost", parts.port or (443 if is_safe else 80))
        self._path = parts.path or "/"
        self._seconds = seconds
        self._open: http.client.HTTPConnection | None = None

    def ask(self, body: bytes) -> dict[str, Any]:
        """Returns the answer to one request: its status and its body. Raises ServerBusy."""
        headers = {"Content-Type": "application/json", "X-Gpuwright-Priority": "batch"}
        try:
            if self._open is None:
                self._open = self._kind(*self._address, timeout=self._seconds)
            self._open.request("POST", self._path, body, headers)
            answer = self._open.getresponse()
            text = answer.read(MOST_ANSWER_BYTES)
            if not answer.isclosed():  # an answer that is cut off leaves its rest on the connection
                self.close()
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise ServerBusy(f"{type(error).__name__}: {error}") from error
        if answer.status in BUSY:
            asked = answer.headers.get("Retry-After", "")
            raise ServerBusy(f"HTTP {answer.status}", float(asked) if re.fullmatch("[0-9]{1,9}", asked) else 0.0)
        return {"status": answer.status, "body": _value(text)}

    def close(self) -> None:
        if self._open is not None:
            self._open.close()
            self._open = None


def _value(text: bytes) -> Any:
    """Returns a JSON body as a value, and any other as text."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text.decode(errors="replace")


@dataclass(slots=True)
class SendingRate:
    """The number of requests that are sent at once now."""

    most: int
    now: float = 0.0
    paused_until: float = 0.0
    refusals: int = 0  # in a row

    def __post_init__(self) -> None:
        self.now = float(self.most)

    def note_answer(self) -> None:
        self.refusals = 0
        self.now = min(float(self.most), self.now + 1 / self.now)

    def note_refusal(self, seconds: float, at: float) -> None:
        """Halves it once a pause, however many were under way, and pauses."""
        if at < self.paused_until:
            return
        self.refusals += 1
        self.now = max(1.0, self.now / 2)
        pause = min(LONGEST_PAUSE_SECONDS, max(seconds, FIRST_PAUSE_SECONDS * 2 ** min(self.refusals - 1, 10)))
        self.paused_until = at + pause * (0.75 + random.random() / 2)  # noqa: S311

    def room(self, under_way: int, at: float) -> int:
        """Returns how many more may be sent now."""
        return 0 if at < self.paused_until else max(0, int(self.now) - under_way)
