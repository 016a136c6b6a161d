"""Reads what the processes of an instance have printed, from one process to the next."""

from __future__ import annotations

from collections.abc import Sequence

from agents.contract.logs import MOST_LOG_BYTES, LogText, LogWanted
from agents.runtime import CopyRuntime
from agents.runtime.logs import plain_lines


def read_printed(wanted: LogWanted, copies: Sequence[str], runtime: CopyRuntime) -> LogText:
    """Returns whole lines of one process, or, with nothing more of it, of the next; without a place the last of all."""
    copy, _, offset = wanted.begins.rpartition("@")
    if copy in copies and offset.isdecimal():
        text, ends = runtime.read_log(copy, int(offset), MOST_LOG_BYTES)
        if text:
            return _text(wanted, copy, text, ends)
        for later in copies[copies.index(copy) + 1 :]:
            text, ends = runtime.read_log(later, 0, MOST_LOG_BYTES)
            if text:
                return _text(wanted, later, text, ends)
        return LogText(wanted.id, wanted.begins)
    return _last_printed(wanted, copies, runtime)


def _last_printed(wanted: LogWanted, copies: Sequence[str], runtime: CopyRuntime) -> LogText:
    """Returns the last lines of all processes together, and the place after the newest that has printed something."""
    begins, printed = f"{copies[-1]}@0" if copies else "", b""
    for copy in reversed(copies):
        room = MOST_LOG_BYTES - len(printed)
        text, ends = runtime.read_log(copy, None, room) if room else (b"", 0)
        if text and not printed:
            begins = f"{copy}@{ends}"
        printed = text + printed
    return LogText(wanted.id, begins, plain_lines(printed))


def _text(wanted: LogWanted, copy: str, text: bytes, ends: int) -> LogText:
    return LogText(wanted.id, f"{copy}@{ends}", plain_lines(text))
