"""Watches a file that says when the cloud takes this node back; something of the node's own writes it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

import msgspec

from agents.contract.fields import LONGEST_NOTICE_SECONDS
from agents.host import clocks
from agents.host.deadline import printable

MOST_BYTES = 4096
PERIOD_SECONDS = 1.0
FURTHEST = timedelta(seconds=LONGEST_NOTICE_SECONDS)
FORMAT = 'a time like 2026-06-01T12:02:00Z, or JSON like {"action": "terminate", "time": "2026-06-01T12:02:00Z"}'

log = logging.getLogger(__name__)


class BadNotice(Exception):
    """The file says nothing that can be used; the message says what is wrong."""


class SpotAction(msgspec.Struct):
    """The answer of EC2's `spot/instance-action`."""

    time: datetime
    action: str = ""


class WatchedNotices:
    """Notices that are looked for again and again."""

    def __init__(self) -> None:
        self.deadline: datetime | None = None
        self.drained = False
        self.away = ""  # why nothing can be looked for

    def watch(self, stopping: threading.Event, on_change: Callable[[], None]) -> None:
        """Looks every second until `stopping` is set."""
        while not stopping.is_set():
            if self.look():
                on_change()
            stopping.wait(PERIOD_SECONDS)

    def look(self) -> bool:
        """Looks once; returns whether anything has changed for the copies here."""
        raise NotImplementedError


class ReclaimFile(WatchedNotices):
    """Reads the file again and again. A file that cannot be used is warned of once, and changes nothing."""

    def __init__(self, path: Path, date: Callable[[], datetime] = clocks.date) -> None:
        super().__init__()
        self._path = path
        self._date = date
        self._fault = ""

    def look(self) -> bool:
        """Reads the file; returns whether the deadline has changed. Without a file there is none."""
        before = self.deadline
        try:
            self.deadline = self._read(self._date())
            self._fault = ""
        except BadNotice as fault:
            if str(fault) != self._fault:
                self._fault = str(fault)
                log.warning("%s says nothing about a reclaim of this node: %s", self._path, fault)
        return self.deadline != before

    def _read(self, now: datetime) -> datetime | None:
        try:
            with self._path.open("rb") as file:
                content = file.read(MOST_BYTES + 1)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise BadNotice(f"it cannot be read: {error.strerror or error}") from error
        if len(content) > MOST_BYTES:
            raise BadNotice(f"it is longer than {MOST_BYTES} bytes")
        deadline = parse_notice(content)
        if deadline - now > FURTHEST:
            hours = LONGEST_NOTICE_SECONDS / 3600
            raise BadNotice(f"{deadline.isoformat()} is more than {hours:g} hours away; drain the node by a deadline")
        return deadline


def parse_notice(content: bytes) -> datetime:
    """Returns the time in the file; BadNotice where there is none."""
    stripped = content.strip()
    try:
        if stripped.startswith(b"{"):
            found = msgspec.json.decode(stripped, type=SpotAction).time
        else:
            found = msgspec.convert(stripped.decode(), datetime)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        shown = printable(stripped[:80].decode(errors="replace"))
        raise BadNotice(f"{shown!r} is not {FORMAT}" if stripped else f"it is empty; it must hold {FORMAT}") from error
    if found.tzinfo is None:
        raise BadNotice(f"{found.isoformat()} has no time zone: end it with Z or +00:00")
    return found
