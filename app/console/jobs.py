"""Words the list of jobs: how far each is, what it would lose, and how its last process ended. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from app.console.wording import number


@dataclass(frozen=True, slots=True)
class JobLine:
    """One row of the list."""

    name: str  # tenant/name
    phase: str
    node: str
    progress: float | None
    unsaved: str
    restarts: int
    retries_left: str
    exit_code: str


def job_lines(jobs: Sequence[tuple[str, Mapping[str, Any]]]) -> list[JobLine]:
    """Returns the rows; a job that no planner has looked at yet has no phase."""
    return [_line(name, status) for name, status in jobs]


def _line(name: str, status: Mapping[str, Any]) -> JobLine:
    unit = "requests" if "requestsUnsaved" in status else "steps"
    unsaved = status.get(f"{unit}Unsaved") or 0
    left, code = status.get("retriesLeft"), status.get("exitCode")
    runs = status.get("phase") in ("starting", "running")
    return JobLine(
        name=name,
        phase=str(status.get("phase", "declared")),
        node=str(status.get("node", "")) if runs else "",
        progress=status.get("progress"),
        unsaved=f"{number(unsaved)} {unit}" if unsaved else "",
        restarts=int(status.get("restarts", 0)),
        retries_left="" if left is None else str(left),
        exit_code="" if code is None else str(code),
    )
