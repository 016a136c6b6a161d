"""Opens files in folders that others may write to: never through a link, never waiting for a pipe."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

_SAFE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def read_start(path: Path, most_bytes: int) -> bytes:
    """Returns the first bytes of a regular file; OSError for anything else in its place."""
    descriptor = _open_regular(path, os.O_RDONLY)
    try:
        return os.read(descriptor, most_bytes)
    finally:
        os.close(descriptor)


def open_empty(path: Path) -> int:
    """Opens a regular file for writing, made or emptied; OSError for anything else in its place."""
    descriptor = _open_regular(path, os.O_WRONLY | os.O_CREAT)
    try:
        os.ftruncate(descriptor, 0)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _open_regular(path: Path, flags: int) -> int:
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | _SAFE)
    try:
        descriptor = os.open(path.name, flags | _SAFE, 0o600, dir_fd=folder)
    finally:
        os.close(folder)
    found = os.fstat(descriptor)
    if stat.S_ISREG(found.st_mode) and found.st_nlink == 1:  # a second name may be one of our own files
        return descriptor
    os.close(descriptor)
    raise OSError(errno.EINVAL, "not a regular file with a single name", str(path))
