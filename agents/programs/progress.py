"""Writes a job's progress to the file that the agent reads."""

from __future__ import annotations

import json
from pathlib import Path

VARIABLE = "GPUWRIGHT_PROGRESS"  # in the job's environment: the file's path


def write_progress(path: Path, units: int, saved: int) -> None:
    """Replaces the file of progress. It must be whole, but need not outlive the machine."""
    fresh = path.with_name(path.name + ".new")
    fresh.write_text(json.dumps({"units": units, "saved": saved}), encoding="ascii")
    fresh.replace(path)
