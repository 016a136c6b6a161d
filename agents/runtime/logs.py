"""Keeps the copies' output within bounds: one file each, to which the copy itself appends.

A pipe would need a reader that never dies: without one the copy blocks, or is killed by SIGPIPE. A file needs none.
The agent cuts a file that has grown: it copies the end aside and empties the file under the copy, which continues
to append. Only a line that is printed in between is lost. While the agent is away, nothing is cut.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote, unquote

LARGEST_BYTES = 1 << 20
_TAIL_BYTES = 4096


class Logs:
    """One folder with `<copy>.log`, and `<copy>.log.1` for what was cut off."""

    def __init__(self, folder: Path, largest_bytes: int) -> None:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._folder = folder.resolve()
        self._largest_bytes = largest_bytes

    def path(self, copy: str) -> Path:
        """Returns the log's path. A name with a slash stays within the folder. ValueError when it is too long."""
        name = quote(copy, safe="")
        if not name or len(name) > 200:
            raise ValueError(f"copy id of {len(copy)} characters cannot name a file")
        return self._folder / f"{name}.log"

    def copy(self, path: str) -> str:
        """Returns the copy that a log belongs to; empty for a file of another kind."""
        folder, _, name = path.rpartition("/")
        return unquote(name.removesuffix(".log")) if folder == str(self._folder) and name.endswith(".log") else ""

    def open(self, copy: str) -> int:
        """Opens the copy's own log for appending and returns the descriptor."""
        return os.open(self.path(copy), os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)

    def tail(self, copy: str) -> str:
        """Returns the last lines."""
        text = b""
        with suppress(ValueError):
            path = self.path(copy)
            for part in (path, path.with_name(path.name + ".1")):
                if len(text) < _TAIL_BYTES:
                    text = _last(part, _TAIL_BYTES - len(text)) + text
        return strip_controls(text)

    def read(self, copy: str, offset: int | None, most_bytes: int) -> tuple[bytes, int]:
        """Returns whole lines from an offset of the file on (None: the last ones), and the offset after them.

        A file that was cut since is read from its beginning.
        """
        try:
            path = self.path(copy)
            with os.fdopen(_open_log(path, os.O_RDONLY), "rb") as file:
                size = file.seek(0, os.SEEK_END)
                if offset is None and size < most_bytes:
                    file.seek(0)
                    current = whole_lines(file.read(most_bytes), most_bytes)
                    earlier = _last(path.with_name(path.name + ".1"), most_bytes - len(current))
                    return earlier + current, len(current)
                begins = size - most_bytes if offset is None else offset if offset <= size else 0
                file.seek(begins)
                part = whole_lines(file.read(most_bytes), most_bytes)
                return part, begins + len(part)
        except (OSError, ValueError):
            return b"", offset or 0

    def tidy(self, copies: Collection[str]) -> None:
        """Cuts long logs, and deletes those of all other copies."""
        with os.scandir(self._folder) as entries:
            for entry in entries:
                path = Path(entry.path)
                copy = unquote(path.name.removesuffix(".1").removesuffix(".log"))
                if copy not in copies and not entry.is_dir(follow_symlinks=False):
                    path.unlink(missing_ok=True)
                elif path.suffix == ".log" and entry.stat(follow_symlinks=False).st_size > self._largest_bytes:
                    _cut(path, self._largest_bytes)


def whole_lines(text: bytes, most_bytes: int) -> bytes:
    """Returns the text up to its last line feed; a line that fills all the room is cut."""
    end = text.rfind(b"\n") + 1
    return text[:end] if end or len(text) < most_bytes else text


def plain_lines(text: bytes) -> str:
    """Returns lines as they were printed, without terminal control sequences."""
    printed = text.decode(errors="replace")
    return "".join(letter for letter in printed if letter in "\n\t" or letter.isprintable())


def strip_controls(text: bytes) -> str:
    """Returns what a program printed without terminal control sequences."""
    printed = text.decode(errors="replace").replace("\t", " ")
    return "".join(letter for letter in printed if letter == "\n" or letter.isprintable()).strip()


def _last(path: Path, count: int) -> bytes:
    try:
        with os.fdopen(_open_log(path, os.O_RDONLY), "rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - count))
            return file.read(count)
    except OSError:
        return b""


def _open_log(path: Path, how: int) -> int:
    """Opens a log that a copy may have replaced: by a link to another file, or by a pipe that blocks forever."""
    handle = os.open(path, how | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(f"{path} is not a file")
    return handle


def _cut(path: Path, count: int) -> None:
    """Empties the log even on a full disk; the old lines are lost then."""
    aside = path.with_name(path.name + ".1")
    with suppress(OSError):
        end = _last(path, count // 2)
        aside.unlink(missing_ok=True)
        with os.fdopen(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
            file.write(end)
    with suppress(OSError):
        handle = _open_log(path, os.O_WRONLY)
        try:
            os.ftruncate(handle, 0)
        finally:
            os.close(handle)
