"""The files of a job on its node: a folder for its saves, which outlives its processes, and its reported progress."""

from __future__ import annotations

import math
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec

from agents.contract.assignments import AssignedInstance
from agents.host import plain_files

CHECKPOINTS = "GPUWRIGHT_CHECKPOINTS"  # in a job's environment: its folder, the same after each restart
PROGRESS = "GPUWRIGHT_PROGRESS"  # the file that it reports its progress in
UNITS = "GPUWRIGHT_UNITS"  # steps or requests in all
JOB = "GPUWRIGHT_JOB"  # tenant/name
MOST_PROGRESS_BYTES = 4096
LARGEST = 1e12


class ProgressFile(msgspec.Struct):
    """The progress that a job writes: its units so far, and those that a new process would not have to repeat."""

    units: float
    saved: float = 0.0


@dataclass(frozen=True, slots=True)
class JobFiles:
    """The folder of a job, and its file of progress."""

    folder: Path

    @property
    def progress(self) -> Path:
        return self.folder / "progress.json"

    def environment(self, instance: AssignedInstance) -> dict[str, str]:
        units = instance.terms.units if instance.terms else 0.0
        return {
            CHECKPOINTS: str(self.folder),
            PROGRESS: str(self.progress),
            UNITS: f"{units:.0f}",
            JOB: instance.owner,
        }

    def prepare(self, user: int | None = None) -> None:
        """Makes the folder, for a user's command its user's own. The progress of an earlier process goes: a new process
        reports its own. Raises OSError."""
        self.folder.parent.mkdir(mode=0o711, parents=True, exist_ok=True)
        self.folder.mkdir(mode=0o700, exist_ok=True)
        if user is not None:
            os.chown(self.folder, user, user, follow_symlinks=False)
        with suppress(FileNotFoundError):
            os.unlink(self.progress)  # noqa: PTH108  a link goes, not what it names

    def read(self) -> ProgressFile | None:
        """Returns the reported progress; None without a file, or with one that cannot be read as such."""
        try:
            raw = plain_files.read_start(self.progress, MOST_PROGRESS_BYTES)
            found = msgspec.json.decode(raw, type=ProgressFile)
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return None
        if not all(math.isfinite(value) and 0 <= value <= LARGEST for value in (found.units, found.saved)):
            return None
        return ProgressFile(found.units, min(found.saved, found.units))


def job_files(root: Path, instance: AssignedInstance) -> JobFiles:
    """Returns the files of a job below the node's folder of saves."""
    return JobFiles(root / (instance.tenant or "default") / instance.job)
