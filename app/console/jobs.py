"""Words the list of jobs: how far each is, what it would lose, and how its last process ended. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from app.console.wording import number
from app.manifests.model import Free


@dataclass(frozen=True, slots=True)
class JobLine:
    """One row of the list."""

    name: str  # tenant/name
    phase: str
    node: str
    why: str  # it waits or has failed
    end: datetime | None  # predicted, or when it finished
    progress: float | None
    unsaved: str
    repeated: str  # done once more, as it had not been saved or its saves were elsewhere
    preemptions: int
    restarts: int
    retries_left: str
    exit_code: str


def job_lines(jobs: Sequence[tuple[str, Free]]) -> list[JobLine]:
    """Returns the rows; a job that no planner has looked at yet has no phase."""
    return [_line(name, status) for name, status in jobs]


def _line(name: str, status: Free) -> JobLine:
    unit = "requests" if "requestsUnsaved" in status else "steps"
    unsaved, repeated = status.get(f"{unit}Unsaved") or 0, status.get(f"{unit}Repeated") or 0
    left, code = status.get("retriesLeft"), status.get("exitCode")
    end = status.get("finishedAt") or status.get("predictedEnd")
    runs = status.get("phase") in ("starting", "running")
    return JobLine(
        name=name,
        phase=str(status.get("phase", "declared")),
        node=str(status.get("node", "")) if runs else "",
        why="" if runs else _why(status),
        end=datetime.fromisoformat(end) if end else None,
        progress=status.get("progress"),
        unsaved=f"{number(unsaved)} {unit}" if unsaved else "",
        repeated=f"{number(repeated)} {unit}" if repeated else "",
        preemptions=int(status.get("preemptions", 0)),
        restarts=int(status.get("restarts", 0)),
        retries_left="" if left is None else str(left),
        exit_code="" if code is None else str(code),
    )


def _why(status: Free) -> str:
    """Returns why the job has no GPU; nothing once it has finished."""
    if status.get("phase") == "finished":
        return ""
    placed = (line for line in status.get("conditions", ()) if line.get("type") == "Placed")
    return next((str(line.get("message", "")) for line in placed if line.get("status") == "False"), "")
