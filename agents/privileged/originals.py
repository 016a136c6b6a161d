"""How each device was set before the root helper first changed it, on disk before it does."""

from __future__ import annotations

from pathlib import Path

import msgspec

from agents import durable


class Original(msgspec.Struct, rename="camel", omit_defaults=True):
    """One device; None for what was never changed."""

    power_mw: int | None = None
    compute_mode: int | None = None
    clock: bool = False  # it was locked by us; before, it was not: the driver has no call that would tell


class _Kept(msgspec.Struct, rename="camel"):
    boot_id: str
    devices: dict[str, Original]


class Originals:
    """A file that is whole or not there; what is in it survives any death of this process.

    Not of the machine: a fresh driver has its own settings, and what was original before may be wrong by now.
    """

    def __init__(self, folder: Path, boot_id: str) -> None:
        self._path = folder / "originals.json"
        self._boot_id = boot_id
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
            kept = msgspec.json.decode(self._path.read_bytes(), type=_Kept)
        except FileNotFoundError:
            return {}
        return kept.devices if kept.boot_id == self._boot_id else {}

    def _write(self, known: dict[str, Original]) -> None:
        durable.write(self._path, msgspec.json.encode(_Kept(self._boot_id, known)))
        self._known = known
