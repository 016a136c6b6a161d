"""What a run of the kit records, in the form in which a recording is sent and kept."""

from __future__ import annotations

import re
from typing import Any, Literal

import msgspec

Outcome = Literal["done", "cut short", "skipped", "failed", "overran"]


class StepRecord(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """One step: how it ended, why if not whole, and what it found."""

    outcome: Outcome
    why: str = ""
    seconds: float = 0.0
    found: dict[str, Any] = {}


class Recording(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """A whole run. `card` is NVML's name of the GPU; of the machine nothing is named but versions."""

    at: str  # the day, UTC
    seconds: float
    is_stand_in: bool
    card: str
    driver: str
    cuda: str  # the newest version that the driver supports
    architecture: str
    kernel: str
    python: str
    gpuwright: str
    commit: str
    seconds_each: float
    changes_settings: bool
    processes_before: int | None  # of others on the GPU
    settings_before: dict[str, int]
    settings_after: dict[str, int]
    steps: dict[str, StepRecord]

    def list_changed_settings(self) -> list[str]:
        """Returns the settings that differ after the run."""
        return [
            name
            for name in sorted(self.settings_before.keys() | self.settings_after.keys())
            if self.settings_before.get(name) != self.settings_after.get(name)
        ]


class KeptRecording(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """A recording that somebody sent, as it is kept."""

    sender: str
    sha256: str  # of the archive
    recording: Recording


def encode(value: Recording | KeptRecording) -> bytes:
    return msgspec.json.format(msgspec.json.encode(value), indent=1) + b"\n"


def name_file(recording: Recording) -> str:
    """Returns the part of a file's name that says which card it is about."""
    card = re.sub(r"[^a-z0-9]+", "-", recording.card.lower()).strip("-")[:60] or "unknown"
    return card + ("-stand-in" if recording.is_stand_in else "")
