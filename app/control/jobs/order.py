"""Who comes first among jobs, the throughput-oriented of two classes of work (OLTunes: urgency, shortest job first).

The other class, latency-critical work, is what services are asked. It stands in no queue: every plan serves it first,
and jobs live on what it leaves. The more urgent comes first: the time that is left over the time that is needed, the
smaller the sooner. Who has plenty of time is not urgent at all; among equals the shortest goes first.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import inf

CALM = 4.0  # times the time it needs: more is no urgency
STEPS = 4  # of urgency between whole numbers: nearer than that is equal


@dataclass(frozen=True, slots=True)
class JobTask:
    """A job that waits."""

    name: str
    seconds: float  # that it takes
    left_seconds: float = inf  # until it must be done
    failed: int = 0  # times that it found no place: it comes before its equals

    @property
    def urgency(self) -> float:
        """The smaller, the more urgent; infinite where nothing presses."""
        if self.left_seconds == inf:
            return inf
        ratio = max(0.0, self.left_seconds) / max(self.seconds, 1e-9)
        return inf if ratio >= CALM else round(ratio * STEPS) / STEPS


def sort_tasks(tasks: Iterable[JobTask]) -> list[JobTask]:
    """Urgency, who failed before, shortest job; then names, so that it is always the same."""
    return sorted(tasks, key=lambda task: (task.urgency, -task.failed, task.seconds, task.name))
