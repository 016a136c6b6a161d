"""Gathers changes of jobs for a moment before a plan is asked for (OLTunes' adaptive batch window).

In the paper a window of 50..1000 ms gathers tasks into a batch for a GPU. Here the batch servers gather requests, with
a timeout that the plan sets; this window gathers jobs: a hundred jobs that are applied one after another, or that end
together, become a single question to the solver. Services never wait: their needs wake the planner at once. The rules
are the paper's: if much latency-critical work waits, the window becomes narrower by a step; if little waits, it becomes
wider; and a failed placement narrows it, too.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from app.control.domain.applied import list_applied
from app.control.domain.snapshot import DeclaredObject

LEAST_MS, MOST_MS, STEP_MS = 50.0, 1000.0, 10.0
MOST_CRITICAL_SHARE = 0.7  # of all that waits
MOST_JOBS = 100  # gathered: so many are planned at once, however short they waited


@dataclass(frozen=True, slots=True)
class Arrivals:
    """Counts of changed manifests."""

    jobs: int = 0
    others: int = 0  # changes of anything but jobs are planned at once


def count_arrivals(before: Collection[DeclaredObject], after: Collection[DeclaredObject]) -> Arrivals:
    """Counts the jobs that were added, removed or changed, and the other changes."""
    applied = list_applied(before, after)
    jobs = sum(item.kind == "Job" for item in applied)
    return Arrivals(jobs, len(applied) - jobs)


@dataclass(frozen=True, slots=True)
class GatheringWindow:
    """The window's width, and the jobs that wait in it."""

    width_ms: float = LEAST_MS
    since: float | None = None  # seconds, of any clock that only goes forward
    jobs: int = 0

    def arrived(self, now: float, jobs: int = 1) -> GatheringWindow:
        """Returns the window after more jobs arrived."""
        return GatheringWindow(self.width_ms, now if self.since is None else self.since, self.jobs + jobs)

    def is_due(self, now: float) -> bool:
        """Returns whether the gathered jobs should be planned now."""
        if self.since is None:
            return False
        return self.jobs >= MOST_JOBS or (now - self.since) * 1000 >= self.width_ms

    def planned(self, latency_critical: int, throughput_oriented: int, failed: bool = False) -> GatheringWindow:
        """Returns the empty window after a plan, with the width that the waiting work calls for."""
        waiting = latency_critical + throughput_oriented
        narrower = failed or (waiting > 0 and latency_critical / waiting > MOST_CRITICAL_SHARE)
        width = self.width_ms - STEP_MS if narrower else self.width_ms + STEP_MS
        return GatheringWindow(min(max(width, LEAST_MS), MOST_MS))
