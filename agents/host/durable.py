"""Writes files atomically: complete or absent, even if the machine dies."""

from __future__ import annotations

import os
from pathlib import Path


def write(path: Path, content: bytes, mode: int = 0o600) -> None:
    """Replaces a file; content and name are on disk when it returns."""
    fresh = path.with_name(path.name + ".new")
    fresh.unlink(missing_ok=True)
    handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(handle, "wb") as file:
        os.fchmod(file.fileno(), mode)
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def write_changed(path: Path, content: bytes, mode: int) -> None:
    """Replaces a file if its content differs."""
    try:
        if path.read_bytes() == content:
            return
    except FileNotFoundError:
        pass
    write(path, content, mode)
