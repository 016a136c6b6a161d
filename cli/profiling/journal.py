"""Keeps what was measured on disk, line by line, so that a measurement that was cut off goes on where it was."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from agents.contract.campaigns import MeasuredSetting
from agents.host import durable
from cli.exits import Failed


def usual_journal(subject: Mapping[str, Any]) -> Path:
    """Returns the file that belongs to this subject: the same command finds it again."""
    state = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
    name = hashlib.sha256(json.dumps(subject, sort_keys=True).encode()).hexdigest()[:16]
    return state / "gpuwright" / f"profile-{name}.jsonl"


class MeasurementJournal:
    """The first line says what is measured; each other line is a measurement, on disk when `add` returns."""

    def __init__(self, path: Path, subject: Mapping[str, Any]) -> None:
        self._path = path
        self._subject = json.dumps(subject, sort_keys=True)
        self.measured: list[MeasuredSetting] = self._read()

    def add(self, measured: MeasuredSetting) -> None:
        self.measured.append(measured)
        self._append(msgspec.json.encode(measured))

    def remove(self) -> None:
        """Removes the file once its measurements are in a Profile."""
        self._path.unlink(missing_ok=True)

    def _read(self) -> list[MeasuredSetting]:
        subject = self._subject.encode() + b"\n"
        try:
            content = self._path.read_bytes()
        except FileNotFoundError:
            content = b""
        except OSError as error:
            raise Failed(f"{self._path} cannot be read: {error.strerror}") from error
        if not content:
            self._begin(subject)
            return []
        if not content.startswith(subject):
            raise Failed(f"{self._path} is of another measurement; name another file with --journal, or delete it")
        whole = content[: content.rfind(b"\n") + 1]  # the rest was being written when the machine died
        try:
            found = [msgspec.json.decode(line, type=MeasuredSetting) for line in whole.splitlines()[1:]]
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise Failed(f"{self._path} cannot be read: {error}; delete it to begin again") from error
        if whole != content:
            os.truncate(self._path, len(whole))
        return found

    def _begin(self, subject: bytes) -> None:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            durable.write(self._path, subject)
        except OSError as error:
            raise Failed(f"{self._path} cannot be written: {error.strerror}") from error

    def _append(self, line: bytes) -> None:
        try:
            with self._path.open("ab") as file:
                file.write(line + b"\n")
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise Failed(f"{self._path} cannot be written: {error.strerror}") from error
