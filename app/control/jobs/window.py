"""How long throughput-oriented arrivals are gathered before a plan is asked for (OLTunes' adaptive batch window).

There a window of 50..1000 ms gathers tasks into one batch for a GPU. Here requests are gathered by the batch servers
themselves, whose timeout the plan sets; what this window gathers is jobs: a hundred that are applied one after
another, or that end together, are one question to the solver. Latency-critical work is never made to wait: what a
service needs wakes the planner at once. The rules are the paper's: much latency-critical work waiting makes the
window narrower by a step, little makes it wider, and a placement that failed narrows it, too.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from app.control.domain.snapshot import DeclaredObject

LEAST_MS, MOST_MS, STEP_MS = 50.0, 1000.0, 10.0
MOST_CRITICAL = 0.7  # of all that waits
MOST_JOBS = 100  # gathered: as many are a batch, however short they waited


@dataclass(frozen=True, slots=True)
class Arrivals:
    """What is declared otherwise than before."""

    jobs: int = 0
    others: int = 0  # anything but jobs: that waits for nobody


def count_arrivals(before: Collection[DeclaredObject], after: Collection[DeclaredObject]) -> Arrivals:
    """How many jobs came, went or changed, and how much else."""
    if before == after:
        return Arrivals()
    was = {(one.kind, one.tenant, one.name): one.spec for one in before}
    now = {(one.kind, one.tenant, one.name): one.spec for one in after}
    moved = [key for key in was.keys() | now.keys() if was.get(key) != now.get(key)]
    jobs = sum(kind == "Job" for kind, _, _ in moved)
    return Arrivals(jobs, len(moved) - jobs)


@dataclass(frozen=True, slots=True)
class GatheringWindow:
    """Its width, and since when jobs wait in it."""

    width_ms: float = LEAST_MS
    since: float | None = None  # seconds, of any clock that only goes forward
    jobs: int = 0

    def arrived(self, now: float, jobs: int = 1) -> GatheringWindow:
        """More jobs wait to be placed."""
        return GatheringWindow(self.width_ms, now if self.since is None else self.since, self.jobs + jobs)

    def is_due(self, now: float) -> bool:
        """Whether what was gathered shall be planned now."""
        if self.since is None:
            return False
        return self.jobs >= MOST_JOBS or (now - self.since) * 1000 >= self.width_ms

    def planned(self, latency_critical: int, throughput_oriented: int, failed: bool = False) -> GatheringWindow:
        """Empty again, and as wide as what still waits in both queues makes it."""
        waiting = latency_critical + throughput_oriented
        narrower = failed or (waiting > 0 and latency_critical / waiting > MOST_CRITICAL)
        width = self.width_ms - STEP_MS if narrower else self.width_ms + STEP_MS
        return GatheringWindow(min(max(width, LEAST_MS), MOST_MS))
