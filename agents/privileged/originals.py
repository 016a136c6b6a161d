"""How each device was set before the root helper first changed it, on disk before it does."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec


class Original(msgspec.Struct, rename="camel", omit_defaults=True):
    """One device; None for what was never changed."""

    power_mw: int | None = None
    compute_mode: int | None = None
    clock: bool = False  # it was locked by us; before, it was not: the driver has no call that would tell


class Originals:
    """A file that is whole or not there; what is in it survives any death of this process or of the machine."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "originals.json"
        self._known = self._read()

    def all(self) -> dict[str, Original]:
        return dict(self._known)

    def of(self, uuid: str) -> Original:
        return self._known.get(uuid, Original())

    def keep(self, uuid: str, original: Original) -> None:
        """On disk when it returns; OSError when it could not be written, and then nothing may be changed."""
        self._write({**self._known, uuid: original})

    def forget(self, uuid: str) -> None:
        self._write({name: original for name, original in self._known.items() if name != uuid})

    def _read(self) -> dict[str, Original]:
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=dict[str, Original])
        except FileNotFoundError:
            return {}

    def _write(self, known: dict[str, Original]) -> None:
        fresh = self._path.with_suffix(".new")
        handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        with os.fdopen(handle, "wb") as file:
            file.write(msgspec.json.encode(known))
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(self._path)
        folder = os.open(self._path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
        self._known = known
