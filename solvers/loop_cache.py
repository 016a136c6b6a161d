"""Keeps compiled loops between processes, in one folder that all checkouts of a user share: a file a loop.

A loop is code that we will run. It is read only from a file that belongs to us, that nobody else may write, and whose
checksum is right. Everything else is compiled again.
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
MOST_SECONDS = 60 * 86_400.0  # since it was last read
TOUCHED_SECONDS = 86_400.0  # so often a use is noted
OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


class LoopCache:
    """One loop's file, as numba's dispatcher asks for it."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @property
    def cache_path(self) -> str:
        return str(self._path.parent)

    def is_kept(self) -> bool:
        try:
            return _is_ours_alone(self._path.stat())
        except OSError:
            return False

    def load_overload(self, signature: Any, target: Any) -> Any:
        """Returns the compiled loop, or nothing where it must be compiled."""
        target.refresh()
        content = _trusted(self._path)
        if content is None or content[:CHECKSUM_BYTES] != self._checksum(content[CHECKSUM_BYTES:]):
            return None
        try:
            parts = pickle.loads(content[CHECKSUM_BYTES:])  # noqa: S301 (written by us alone)
            return CompileResult._rebuild(target, *parts)  # type: ignore[no-untyped-call]
        except Exception:  # whatever an entry holds: the source is at hand
            return None

    def save_overload(self, signature: Any, compiled: Any) -> None:
        """A loop that cannot be kept is compiled again by the next process."""
        if compiled.library.has_dynamic_globals:  # addresses of this process
            return
        content: bytes = dumps(compiled._reduce())  # type: ignore[no-untyped-call]
        with contextlib.suppress(OSError):
            _write(self._path, self._checksum(content) + content)
            prune(self._path.parent)

    def _checksum(self, content: bytes) -> bytes:
        """Of the name as well: a loop under another loop's name is as wrong as half a loop."""
        return hashlib.sha256(hashlib.sha256(self._path.name.encode()).digest() + content).digest()


@cache
def cache_folder() -> Path | None:
    """Returns the user's cache, else a folder beside the code, else nothing: then no loop is kept."""
    candidates = [Path(__file__).resolve().parent / "__pycache__" / "compiled"]
    with contextlib.suppress(RuntimeError):  # a user without a home
        configured = Path(os.environ.get("XDG_CACHE_HOME", ""))
        if configured.is_absolute():
            candidates.insert(0, configured / "gpuwright" / "compiled")
        elif Path.home().is_dir():  # a home that is not there is not ours to make
            candidates.insert(0, Path.home() / ".cache" / "gpuwright" / "compiled")
    return next((folder for folder in candidates if _can_be_used(folder)), None)


@contextlib.contextmanager
def compiling_alone(folder: Path) -> Iterator[None]:
    """Waits until no other process holds the folder: what that one compiled need not be compiled again."""
    number = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(number, fcntl.LOCK_EX)
        yield
    finally:
        os.close(number)


def is_compiled_elsewhere(folder: Path) -> bool:
    """Returns whether a process that lives holds the folder."""
    number = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(number, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(number)
    return False


def prune(folder: Path) -> None:
    """Remove what was not read for long, and of the rest the oldest beyond what all may take."""
    with contextlib.suppress(OSError):
        kept = sorted(((file.stat(), file) for file in folder.iterdir()), key=lambda entry: -entry[0].st_mtime)
        taken, oldest = 0, time.time() - MOST_SECONDS
        for state, file in kept:
            taken += state.st_size
            if taken > MOST_BYTES or state.st_mtime < oldest:
                file.unlink(missing_ok=True)


def _can_be_used(folder: Path) -> bool:
    """Others who could write there could give us their code to run."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return _is_ours_alone(folder.stat())
    except OSError:
        return False


def _is_ours_alone(state: os.stat_result) -> bool:
    return state.st_uid == os.geteuid() and not state.st_mode & OTHERS_WRITE


def _trusted(path: Path) -> bytes | None:
    try:
        with path.open("rb") as file:
            state = os.fstat(file.fileno())  # of what is read, whatever the name leads to by now
            content = file.read() if _is_ours_alone(state) else None
        if time.time() - state.st_mtime > TOUCHED_SECONDS:
            os.utime(path)
    except OSError:
        return None
    return content


def _write(path: Path, content: bytes) -> None:
    """Whole or not at all, whoever else writes it now; readable by us alone."""
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".", delete=False) as file:
        try:
            file.write(content)
            file.flush()
            Path(file.name).replace(path)
        except BaseException:
            Path(file.name).unlink()
            raise
