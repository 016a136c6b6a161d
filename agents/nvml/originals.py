"""How a GPU was set before we touched it, on disk before the first change, so that any later agent can put it back."""

from __future__ import annotations

import threading
from pathlib import Path

import msgspec

from agents import durable
from agents.clocks import boot_id


class Original(msgspec.Struct, frozen=True, omit_defaults=True):
    """Of one GPU, what was changed and to what it goes back; a locked clock goes back to a free one."""

    clock_locked: bool = False
    power_mw: int | None = None
    compute_mode: int | None = None


class _File(msgspec.Struct):
    boot_id: str
    gpus: dict[str, Original] = {}


class Originals:
    """By UUID. What was written before the last boot is void: the driver has forgotten it, too."""

    def __init__(self, path: Path, boot: str = "") -> None:
        self._path = path
        self._lock = threading.Lock()
        self._file = _File(boot or boot_id())
        kept = self._read()
        if kept is not None and kept.boot_id == self._file.boot_id:
            self._file = kept

    def of(self, uuid: str) -> Original:
        return self._file.gpus.get(uuid, Original())

    def changed(self) -> tuple[str, ...]:
        return tuple(self._file.gpus)

    def keep(self, uuid: str, knob: Original) -> None:
        """What was found of one knob, on disk when this returns; only the first to be kept tells how it was."""
        with self._lock:
            known = self._file.gpus.get(uuid, Original())
            kept = Original(
                known.clock_locked or knob.clock_locked,
                knob.power_mw if known.power_mw is None else known.power_mw,
                knob.compute_mode if known.compute_mode is None else known.compute_mode,
            )
            if kept != known:
                self._file.gpus[uuid] = kept
                self._write()

    def forget(self, uuid: str) -> None:
        """It is as it was."""
        with self._lock:
            if self._file.gpus.pop(uuid, None) is not None:
                self._write()

    def _read(self) -> _File | None:
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=_File)
        except FileNotFoundError:
            return None
        except msgspec.DecodeError:
            # Half a file cannot be ours, since it is replaced whole. Keep it for whoever wonders.
            self._path.replace(self._path.with_suffix(".unreadable"))
            return None

    def _write(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        durable.write(self._path, msgspec.json.encode(self._file))
