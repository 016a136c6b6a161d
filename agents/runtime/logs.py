"""What the copies print, kept within bounds: one file each, appended to by the copy itself.

A pipe would need a reader that never dies: without one the copy blocks, or is killed by SIGPIPE. A file needs nobody.
The agent cuts it when it has grown: the last of it is copied aside and the file is emptied under the copy, which goes
on appending at its new end. A line that is printed in between is lost, and nothing else is. While the agent is away
nobody cuts.
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

    def __init__(self, folder: Path, largest_bytes: int = LARGEST_BYTES) -> None:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._folder = folder.resolve()
        self._largest_bytes = largest_bytes

    def path(self, copy: str) -> Path:
        """Copies are named elsewhere: a name with a slash stays within the folder. ValueError when it is too long."""
        name = quote(copy, safe="")
        if not name or len(name) > 200:
            raise ValueError(f"copy id of {len(copy)} characters cannot name a file")
        return self._folder / f"{name}.log"

    def copy(self, path: str) -> str:
        """Whose log a file is; empty when it is none of this folder."""
        folder, _, name = path.rpartition("/")
        return unquote(name.removesuffix(".log")) if folder == str(self._folder) and name.endswith(".log") else ""

    def open(self, copy: str) -> int:
        """A descriptor to append by, for the copy alone."""
        return os.open(self.path(copy), os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)

    def tail(self, copy: str) -> str:
        """The last lines."""
        text = b""
        with suppress(ValueError):
            path = self.path(copy)
            for part in (path, path.with_name(path.name + ".1")):
                if len(text) < _TAIL_BYTES:
                    text = _last(part, _TAIL_BYTES - len(text)) + text
        return plain(text)

    def tidy(self, copies: Collection[str]) -> None:
        """Cut what has grown too long, and delete the logs of all other copies."""
        with os.scandir(self._folder) as entries:
            for entry in entries:
                path = Path(entry.path)
                copy = unquote(path.name.removesuffix(".1").removesuffix(".log"))
                if copy not in copies and not entry.is_dir(follow_symlinks=False):
                    path.unlink(missing_ok=True)
                elif path.suffix == ".log" and entry.stat(follow_symlinks=False).st_size > self._largest_bytes:
                    _cut(path, self._largest_bytes)


def plain(text: bytes) -> str:
    """What a program printed, without anything that a terminal would obey."""
    said = text.decode(errors="replace").replace("\t", " ")
    return "".join(letter for letter in said if letter == "\n" or letter.isprintable()).strip()


def _last(path: Path, count: int) -> bytes:
    try:
        with os.fdopen(_opened(path, os.O_RDONLY), "rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - count))
            return file.read(count)
    except OSError:
        return b""


def _opened(path: Path, how: int) -> int:
    """A copy may have put something else in its log's place: a link to another file, a pipe to wait at for ever."""
    handle = os.open(path, how | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(f"{path} is no file")
    return handle


def _cut(path: Path, count: int) -> None:
    """A full disk must not keep the log from being emptied: then the old lines are lost."""
    aside = path.with_name(path.name + ".1")
    with suppress(OSError):
        kept = _last(path, count // 2)
        aside.unlink(missing_ok=True)
        with os.fdopen(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
            file.write(kept)
    with suppress(OSError):
        handle = _opened(path, os.O_WRONLY)
        try:
            os.ftruncate(handle, 0)
        finally:
            os.close(handle)
