"""The counters of a copy since it began, from the gateway or from the server itself."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Counters:
    """Totals of one copy; they only grow, unless the counter restarts."""

    requests: int = 0
    errors: int = 0
    latency_counts: tuple[int, ...] = ()  # by contract.LATENCY_EDGES_MS; the last for all above


@dataclass(frozen=True, slots=True)
class Served:
    """A copy's own report through its metrics endpoint; None for what it does not report."""

    counters: Counters
    batch_mean: float | None = None
    queue: float | None = None
    busy_seconds: float | None = None  # total
    sm_count: int | None = None  # multiprocessors visible to the process: the limit in force
    memory_gib: float | None = None
    batch: int | None = None  # the largest that it accepts now
    batch_timeout_ms: float | None = None
    steps: float | None = None  # of a job, total
    batches: float | None = None  # total; `batch_mean` is over all of them
    dropped: int = 0  # lines without a valid amount: NaN, infinite, negative, malformed
