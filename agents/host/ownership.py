"""Whether a folder is ours alone to write: where others can, they put another token, journal or socket in its place."""

from __future__ import annotations

import os
from pathlib import Path


def require_own_folder(folder: Path) -> None:
    """PermissionError when somebody else owns the folder, or may write it; it is made when it is not there."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = folder.stat()
    if found.st_uid != os.geteuid():
        raise PermissionError(
            f"{folder} belongs to user {found.st_uid}; it must be of user {os.geteuid()}, who runs this"
        )
    if found.st_mode & 0o022:
        raise PermissionError(f"{folder} can be written by others (mode {found.st_mode & 0o777:o}); run chmod go-w")
