"""A GPU's settings before our first change, saved on disk, so that any later process can restore them."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path

import msgspec

from agents.host import durable
from agents.host.clocks import boot_id


class Original(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The changed settings of a GPU with their values before; a locked clock is simply released."""

    clock_locked: bool = False
    power_mw: int | None = None
    compute_mode: int | None = None


class _File(msgspec.Struct, rename="camel"):
    boot_id: str
    gpus: Mapping[str, Original] = {}


class Originals:
    """Originals by UUID. Entries from before the last boot are void: the driver has forgotten the changes too.

    MsgspecError for a file that cannot be read: it is written atomically, so half a file cannot be ours.
    """

    def __init__(self, path: Path, boot: str = "") -> None:
        self._path = path
        self._boot = boot or boot_id()
        self._lock = threading.Lock()
        self._gpus: Mapping[str, Original] = {}
        if path.exists():
            stored = msgspec.json.decode(path.read_bytes(), type=_File)
            self._gpus = stored.gpus if stored.boot_id == self._boot else {}

    def of(self, uuid: str) -> Original:
        return self._gpus.get(uuid, Original())

    def changed(self) -> tuple[str, ...]:
        return tuple(self._gpus)

    def keep(self, uuid: str, knob: Original) -> None:
        """Saves the value of a knob before its first change, on disk when this returns; later values are ignored.

        OSError when it could not be written, and then nothing may be changed.
        """
        with self._lock:
            known = self.of(uuid)
            stored = Original(
                known.clock_locked or knob.clock_locked,
                knob.power_mw if known.power_mw is None else known.power_mw,
                knob.compute_mode if known.compute_mode is None else known.compute_mode,
            )
            if stored != known:
                self._write({**self._gpus, uuid: stored})

    def forget(self, uuid: str) -> None:
        """Forgets a GPU whose settings are restored."""
        with self._lock:
            if uuid in self._gpus:
                self._write({name: original for name, original in self._gpus.items() if name != uuid})

    def _write(self, gpus: Mapping[str, Original]) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        durable.write(self._path, msgspec.json.encode(_File(self._boot, gpus)))
        self._gpus = gpus


def open_originals(path: Path) -> Originals:
    """Opens the file; an unreadable one is renamed and kept for inspection."""
    try:
        return Originals(path)
    except msgspec.MsgspecError:
        path.replace(path.with_suffix(".unreadable"))
        return Originals(path)
