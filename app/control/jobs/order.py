"""Orders jobs, the throughput-oriented of two classes of work (OLTunes: urgency, shortest job first).

The other class, latency-critical work, is the load of services. It is never queued: every plan serves it first, and
jobs get what it leaves. Urgency is the remaining time over the time that a job needs: the smaller, the sooner. A job
with plenty of time is not urgent at all; among equals the shortest goes first.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import inf

CALM_RATIO = 4.0  # of remaining to needed time: above it a job is not urgent
STEPS_PER_UNIT = 4  # of the ratio: closer ratios count as equal


@dataclass(frozen=True, slots=True)
class JobTask:
    """A job that waits."""

    name: str
    seconds: float  # that it takes
    left_seconds: float = inf  # until it must be done
    failed: int = 0  # failed attempts to place it: it comes before its equals

    @property
    def urgency(self) -> float:
        """The smaller, the more urgent; infinite for a job that is not urgent."""
        if self.left_seconds == inf:
            return inf
        ratio = max(0.0, self.left_seconds) / max(self.seconds, 1e-9)
        return inf if ratio >= CALM_RATIO else round(ratio * STEPS_PER_UNIT) / STEPS_PER_UNIT


def sort_tasks(tasks: Iterable[JobTask]) -> list[JobTask]:
    """Sorts by urgency, failed attempts and length; then by name, so that the order is always the same."""
    return sorted(tasks, key=lambda task: (task.urgency, -task.failed, task.seconds, task.name))
