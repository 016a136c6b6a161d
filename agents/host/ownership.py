"""Checks that only our user can write a folder; others could replace its token, journal or socket."""

from __future__ import annotations

import os
from pathlib import Path


def require_own_folder(folder: Path) -> None:
    """Creates the folder if needed; raises PermissionError if another user owns it or may write it."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    refuse_shared_folder(folder)


def refuse_shared_folder(folder: Path) -> None:
    """Raises PermissionError if another user owns the folder or may write it."""
    found = folder.stat()
    if found.st_uid != os.geteuid():
        raise PermissionError(
            f"{folder} belongs to user {found.st_uid}; it must belong to user {os.geteuid()}, who runs this"
        )
    if found.st_mode & 0o022:
        raise PermissionError(f"{folder} can be written by others (mode {found.st_mode & 0o777:o}); run chmod go-w")
