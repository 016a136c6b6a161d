"""Caches compiled loops between processes, one file a loop, in one folder shared by all checkouts of a user.

A loop is code that we will run. It is read only from a file that belongs to us, that no other user may write, and
whose checksum is right. Everything else is compiled again.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import pickle
import stat
import tempfile
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from numba.core.compiler import CompileResult
from numba.core.serialize import dumps

CHECKSUM_BYTES = 32
MOST_BYTES = 256 * 1024 * 1024
MOST_SECONDS = 60 * 86_400.0  # since the file was last read
TOUCHED_SECONDS = 86_400.0  # a read is noted at most this often
OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


class LoopCache:
    """The file of one loop, behind the interface that numba's dispatcher expects."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @property
    def cache_path(self) -> str:
        return str(self._path.parent)

    def is_cached(self) -> bool:
        try:
            return _is_ours_alone(self._path.stat())
        except OSError:
            return False

    def load_overload(self, signature: Any, target: Any) -> Any:
        """Returns the compiled loop, or None if it must be compiled."""
        target.refresh()
        content = _read_trusted(self._path)
        if content is None or content[:CHECKSUM_BYTES] != self._checksum(content[CHECKSUM_BYTES:]):
            return None
        try:
            parts = pickle.loads(content[CHECKSUM_BYTES:])  # noqa: S301 (written by us alone)
            return CompileResult._rebuild(target, *parts)  # type: ignore[no-untyped-call]
        except Exception:  # a broken entry does no harm: the loop is compiled from its source
            return None

    def save_overload(self, signature: Any, compiled: Any) -> None:
        """Writes the compiled loop. If that fails, the next process compiles it again."""
        if compiled.library.has_dynamic_globals:  # they are addresses of this process
            return
        content: bytes = dumps(compiled._reduce())  # type: ignore[no-untyped-call]
        with contextlib.suppress(OSError):
            _write(self._path, self._checksum(content) + content)
            prune(self._path.parent)

    def _checksum(self, content: bytes) -> bytes:
        """Covers the name as well: a loop under another loop's name is as wrong as half a loop."""
        return hashlib.sha256(hashlib.sha256(self._path.name.encode()).digest() + content).digest()


@cache
def cache_folder() -> Path | None:
    """Returns the user's cache folder, else a folder next to the code, else None: then no loop is cached."""
    candidates = [Path(__file__).resolve().parent / "__pycache__" / "compiled"]
    with contextlib.suppress(RuntimeError):  # a user without a home
        configured = Path(os.environ.get("XDG_CACHE_HOME", ""))
        if configured.is_absolute():
            candidates.insert(0, configured / "gpuwright" / "compiled")
        elif Path.home().is_dir():  # a missing home is not ours to create
            candidates.insert(0, Path.home() / ".cache" / "gpuwright" / "compiled")
    return next((folder for folder in candidates if _can_be_used(folder)), None)


@contextlib.contextmanager
def compiling_alone(folder: Path) -> Iterator[None]:
    """Waits until no other process holds the folder, because the loops that process compiles can be reused."""
    number = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(number, fcntl.LOCK_EX)
        yield
    finally:
        os.close(number)


def is_compiled_elsewhere(folder: Path) -> bool:
    """Returns whether a living process holds the folder."""
    number = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(number, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(number)
    return False


def prune(folder: Path) -> None:
    """Removes files that were not read for long, then the oldest ones until the rest fit into the size limit."""
    with contextlib.suppress(OSError):
        files = sorted(((file.stat(), file) for file in folder.iterdir()), key=lambda entry: -entry[0].st_mtime)
        taken, oldest = 0, time.time() - MOST_SECONDS
        for state, file in files:
            taken += state.st_size
            if taken > MOST_BYTES or state.st_mtime < oldest:
                file.unlink(missing_ok=True)


def _can_be_used(folder: Path) -> bool:
    """Creates the folder if needed. It must be ours alone: anyone else who may write there could make us run code."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return _is_ours_alone(folder.stat())
    except OSError:
        return False


def _is_ours_alone(state: os.stat_result) -> bool:
    return state.st_uid == os.geteuid() and not state.st_mode & OTHERS_WRITE


def _read_trusted(path: Path) -> bytes | None:
    try:
        with path.open("rb") as file:
            state = os.fstat(file.fileno())  # of the open file: the name may point elsewhere by now
            content = file.read() if _is_ours_alone(state) else None
        if time.time() - state.st_mtime > TOUCHED_SECONDS:
            os.utime(path)
    except OSError:
        return None
    return content


def _write(path: Path, content: bytes) -> None:
    """Writes the whole file or nothing, even if another process writes it now; only we can read it."""
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".", delete=False) as file:
        try:
            file.write(content)
            file.flush()
            Path(file.name).replace(path)
        except BaseException:
            Path(file.name).unlink()
            raise
