"""The counters of a copy since it began, from the gateway or from the server itself."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Counters:
    """Totals of one copy; they only grow, unless the counter restarts."""

    requests: int = 0
    errors: int = 0
    # By contract.LATENCY_EDGES_MS, the last for all above; of a service that promises times of tokens, to the first.
    latency_counts: tuple[int, ...] = ()
    paced: int = 0  # answers whose pace of tokens was compared with the promise
    pace_late: int = 0  # of those, slower


@dataclass(frozen=True, slots=True)
class TokensServed:
    """The tokens of a language model's server since it began, and how fast they came."""

    tokens_in: int = 0
    tokens_out: int = 0
    first_counts: tuple[int, ...] = ()  # times to first tokens, by contract.LATENCY_EDGES_MS
    pace_counts: tuple[int, ...] = ()  # times of the tokens after the first, by the same edges


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
    saved_steps: float | None = None  # of a job: where a new process would continue
    batches: float | None = None  # total; `batch_mean` is over all of them
    tokens: TokensServed | None = None  # of a language model, totals
    dropped: int = 0  # lines without a valid amount: NaN, infinite, negative, malformed
