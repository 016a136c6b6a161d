"""The lock that allows a single `gpuwright up` on a folder."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from app.postgres.faults import PostgresError


class FolderInUseError(PostgresError):
    """Another process runs on this folder; its number is in the message."""


class FolderLock:
    """A lock that this process holds until it releases it or ends in any way; the server does not inherit it."""

    def __init__(self, folder: Path) -> None:
        self._fd = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(self._fd, 32).decode(errors="replace").strip() or "unknown"
            os.close(self._fd)
            raise FolderInUseError(
                f"{folder} is in use by another gpuwright (process {holder}); stop that one, "
                "or choose another --data-dir"
            ) from None
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        os.close(self._fd)
