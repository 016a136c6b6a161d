"""The answers of a batch on disk: appended, one line each, and known again after a kill at any moment.

An answer counts once its line is whole. A line that was cut off at the end, by a kill or a full disk, is removed when
the file is opened again, and its request is sent again. The file is synchronised every so many answers and every few
seconds: what a crash of the machine loses is sent again, too.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from agents.host import durable
from agents.programs.batch.lines import WrongRequests

SYNC_ANSWERS = 256
SYNC_SECONDS = 2.0
HEAD = "batch.json"
RESULTS = "results.jsonl"


class AnswerFile:
    """The folder of a batch's results: `results.jsonl`, and `batch.json`, which says what requests it answers."""

    def __init__(self, folder: Path, count: int, fingerprint: str) -> None:
        folder.mkdir(mode=0o700, exist_ok=True)
        self._head(folder / HEAD, {"requests": count, "fingerprint": fingerprint})
        self.path = folder / RESULTS
        # A link in its place could name any file, whose end would then be cut off.
        self._handle = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        self._lock()
        self.done = self._repair(count)
        self.saved = self.answered = len(self.numbers())
        self._synced_at = time.monotonic()

    def numbers(self) -> set[int]:
        """Returns the numbers of the answered requests."""
        return {number for number, is_done in enumerate(self.done) if is_done}

    def add(self, number: int, answer: dict[str, Any]) -> bool:
        """Appends an answer; returns whether the request had none yet. Raises OSError, and the file is then whole."""
        if self.done[number]:
            return False
        line = json.dumps({"line": number, **answer}, separators=(",", ":")).encode() + b"\n"
        before = os.fstat(self._handle).st_size
        written = os.write(self._handle, line)
        if written != len(line):  # the disk is full
            os.ftruncate(self._handle, before)
            raise OSError(f"{self.path}: no space left for an answer")
        self.done[number] = 1
        self.answered += 1
        if self.answered - self.saved >= SYNC_ANSWERS or time.monotonic() - self._synced_at >= SYNC_SECONDS:
            self.save()
        return True

    def save(self) -> None:
        """Synchronises the file: these answers outlive the machine."""
        os.fsync(self._handle)
        self.saved, self._synced_at = self.answered, time.monotonic()

    def close(self) -> None:
        self.save()
        os.close(self._handle)

    def _lock(self) -> None:
        """Locks the file: two processes of a batch would send every request twice."""
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise OSError(f"{self.path} is being written by another process") from None

    def _head(self, path: Path, wanted: dict[str, Any]) -> None:
        try:
            known = json.loads(path.read_bytes())
        except FileNotFoundError:
            durable.write(path, json.dumps(wanted).encode())
            return
        if known != wanted:
            raise WrongRequests(f"{path.parent} answers other requests ({known}); move it away to begin again")

    def _repair(self, count: int) -> bytearray:
        """Returns which requests are answered, by number, and cuts off a last line that is not whole."""
        done, whole = bytearray(count), 0
        with os.fdopen(os.dup(self._handle), "rb") as file:
            file.seek(0)
            for number, length in _answers(file):
                if number is None:
                    break
                if not 0 <= number < count or done[number]:
                    raise WrongRequests(f"{self.path}: line {number} is unknown, or answered twice")
                done[number] = 1
                whole += length
            rest = os.fstat(self._handle).st_size - whole
        if rest:
            os.ftruncate(self._handle, whole)
            os.fsync(self._handle)
        return done


def _answers(file: IO[bytes]) -> Iterator[tuple[int | None, int]]:
    """Yields the number and the length of each whole answer, and None where the rest cannot be read."""
    for line in file:
        try:
            number = json.loads(line)["line"] if line.endswith(b"\n") else None
        except (ValueError, KeyError, TypeError):
            number = None
        yield (number if type(number) is int else None), len(line)
        if number is None:
            return
