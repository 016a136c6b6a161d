"""Records on disk what the agent is about to do, so that it can go on or undo it after being killed anywhere."""

from __future__ import annotations

import fcntl
import os
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from agents.keeper.copies import NodeCopy

LONGEST_BYTES = 1 << 20  # a longer file, of twice the needed size, is rewritten with only the newest line of each copy


class JournalError(Exception):
    """The journal cannot be used; an operator must look before anything is started or stopped."""


class Journal:
    """A file of lines, each a whole copy at that time; the last line of each copy counts."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = _lock_journal(path.with_suffix(".lock"))
        self._copies = _read(path)
        self._file = -1
        self._needed_bytes = 0
        written = path.stat().st_mtime if path.exists() else None
        self._rewrite()
        if written is not None:
            os.utime(path, (written, written))
        self.last_written = None if written is None else datetime.fromtimestamp(written, UTC)  # by an earlier agent

    @property
    def copies(self) -> dict[str, NodeCopy]:
        """Returns every copy, by id, that is not both gone and accounted for."""
        return self._copies

    def write(self, copy: NodeCopy) -> None:
        """Writes `copy` to disk; only then may its stage's action be taken."""
        line = msgspec.json.encode(copy) + b"\n"
        found = os.fstat(self._file)
        if not found.st_nlink:
            self._rewrite()  # the file was deleted; a restart must still find what is recorded
            found = os.fstat(self._file)
        before = found.st_size
        if os.write(self._file, line) != len(line):  # the disk is full
            os.ftruncate(self._file, before)
            raise OSError("the journal could not be written completely: no space left on device")
        os.fsync(self._file)
        self._remember(copy)
        if os.fstat(self._file).st_size > max(LONGEST_BYTES, 2 * self._needed_bytes):
            self._rewrite()

    def close(self) -> None:
        os.close(self._file)
        os.close(self._lock)

    def _remember(self, copy: NodeCopy) -> None:
        if copy.settled:
            self._copies.pop(copy.id, None)
        else:
            self._copies[copy.id] = copy

    def _rewrite(self) -> None:
        """Replaces the file atomically: a crash leaves the old one or the new one."""
        fresh = self._path.with_suffix(".new")
        handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC, 0o600)
        with os.fdopen(os.dup(handle), "wb") as file:
            file.writelines(msgspec.json.encode(copy) + b"\n" for copy in self._copies.values())
        os.fsync(handle)
        self._needed_bytes = os.fstat(handle).st_size
        fresh.replace(self._path)
        folder = os.open(self._path.parent, os.O_RDONLY)
        os.fsync(folder)
        os.close(folder)
        if self._file >= 0:
            os.close(self._file)
        self._file = handle


def _lock_journal(path: Path) -> int:
    """Locks the journal: two agents that share one would each stop what the other starts."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        raise JournalError(f"another agent already uses {path.parent}") from None
    return handle


def _read(path: Path) -> dict[str, NodeCopy]:
    """Reads the copies. A torn last line is ignored: its action was not begun. Any other bad line is an error."""
    try:
        lines = path.read_bytes().split(b"\n")
    except FileNotFoundError:
        return {}
    copies: dict[str, NodeCopy] = {}
    for number, line in enumerate(lines, start=1):
        if not line:
            continue
        try:
            copy = msgspec.json.decode(line, type=NodeCopy)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            if number >= len(lines) - 1:
                continue
            advice = "move the file away and run `gpuwright agent adopt`"
            raise JournalError(f"{path}, line {number}, cannot be read ({error}); {advice}") from error
        copies[copy.id] = copy
    return {name: copy for name, copy in copies.items() if not copy.settled}
