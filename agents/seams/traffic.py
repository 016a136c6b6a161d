"""What a copy has served since it began, whoever counted it: the gateway in front, or the server itself."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Counters:
    """Totals of one copy; they only grow, unless the counter began anew."""

    requests: int = 0
    errors: int = 0
    latency_counts: tuple[int, ...] = ()  # by contract.LATENCY_EDGES_MS, the last for what is beyond


@dataclass(frozen=True, slots=True)
class Served:
    """What a copy says of itself, through its metrics endpoint; None where it does not say."""

    counters: Counters
    batch_mean: float | None = None
    queue: float | None = None
    busy_seconds: float | None = None  # total
    sm_count: int | None = None  # multiprocessors as seen inside: the limit in force
    memory_gib: float | None = None
    batch: int | None = None  # the largest it takes now
    batch_timeout_ms: float | None = None
    steps: float | None = None  # of a job, total
    batches: float | None = None  # total; `batch_mean` is over all of them
    dropped: int = 0  # lines that said no amount: NaN, infinite, negative, garbled
