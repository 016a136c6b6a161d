"""Unix sockets whose paths are longer than an address has room for."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

LONGEST_PATH_BYTES = 107


@contextmanager
def short_name(path: Path) -> Iterator[str]:
    """A name for the socket, to bind or to connect to: one that is too long goes through its folder's handle."""
    if len(os.fsencode(path)) <= LONGEST_PATH_BYTES:
        yield str(path)
        return
    handle = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{handle}/{path.name}"
    finally:
        os.close(handle)
