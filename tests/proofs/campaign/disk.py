"""A disk that loses at a power cut whatever was not synced: remembers for each file what fsync made durable."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class PowerSafeDisk:
    """Takes the place of os.fsync while it is in use; folders and files are real."""

    def __init__(self) -> None:
        self._sizes: dict[int, int] = {}  # by inode: how many bytes are durable
        self._names: dict[str, dict[str, int]] = {}  # by folder: the inode of each durable name

    def sync(self, handle: int) -> None:
        """Makes a file's content, or a folder's names, durable."""
        found = os.fstat(handle)
        if not stat.S_ISDIR(found.st_mode):
            self._sizes[found.st_ino] = found.st_size
            return
        folder = Path(os.readlink(f"/proc/self/fd/{handle}"))  # noqa: PTH115
        self._names[str(folder)] = {entry.name: entry.inode() for entry in os.scandir(folder)}

    def durable(self, path: Path) -> bytes:
        """Returns the content that a power cut now would leave; empty if it would leave no such file."""
        inode = self._names.get(str(path.parent), {}).get(path.name)
        if inode is None or not path.exists() or path.stat().st_ino != inode:
            return b""
        with path.open("rb") as file:
            return file.read(self._sizes.get(inode, 0))

    def cut_power(self, folder: Path) -> None:
        """Takes from the folder's files whatever is not durable."""
        for path in [path for path in folder.iterdir() if path.is_file() and path.suffix != ".lock"]:
            content = self.durable(path)
            if content:
                os.truncate(path, len(content))
            else:
                path.unlink()


@contextmanager
def in_use(disk: PowerSafeDisk) -> Iterator[None]:
    """Replaces os.fsync for the whole process."""
    real = os.fsync
    os.fsync = disk.sync  # type: ignore[assignment]
    try:
        yield
    finally:
        os.fsync = real
