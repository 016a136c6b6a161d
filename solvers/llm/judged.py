"""Judges an SLO of tokens: simulates a server at its rate, and once more at length where there is doubt."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from solvers.llm.iteration import BatchingLimits, IterationCost, TokenLengths, TokenPromise
from solvers.llm.served import serve_stream
from solvers.llm.streams import stream

REQUESTS = 100_000
AGAIN_REQUESTS = 1_000_000
AGAIN_SEED = 1_000
SKIPPED_SHARE = 0.05  # of the requests, the first: the server starts empty
BLOCKS = 30
MOST_ERRORS = 4  # standard errors below what is wanted that still count as chance
IN_MEMORY_SHARE = 0.999  # of requests that are neither preempted nor too long for memory; chance excuses nothing


@dataclass(frozen=True, slots=True)
class KeptShare:
    """The share of requests that get what is wanted, and its standard error."""

    share: float
    error: float
    wanted: float

    def kept(self, errors: float) -> bool:
        return self.share >= self.wanted - errors * self.error


@dataclass(frozen=True, slots=True)
class TokenVerdict:
    """The times that a server's requests got at a rate, and whether its promise holds."""

    kept: bool
    ttft: KeptShare  # requests that get their first token in time
    tpot: KeptShare  # requests of two tokens or more that keep the pace
    memory: KeptShare  # requests that are neither preempted nor too long for memory
    preemptions: int
    too_long: int  # requests that do not fit into memory alone
    peak_kv_tokens: int
    busy_share: float  # of the time
    mean_sequences: float  # that run, over time
    requests: int  # of the simulation that decided


def holds(
    cost: IterationCost,
    limits: BatchingLimits,
    lengths: TokenLengths,
    promise: TokenPromise,
    rate_per_second: float,
    seed: int = 0,
) -> TokenVerdict:
    """Returns what 100,000 requests get, and if the promise holds.

    If a share is below what is wanted by any amount, 1,000,000 requests of another seed are simulated instead; then
    shares of TTFT and TPOT that are up to 4 standard errors below still keep the promise.
    """
    verdict = _verdict(cost, limits, lengths, promise, rate_per_second, REQUESTS, seed, 0)
    if verdict.kept:
        return verdict
    return _verdict(cost, limits, lengths, promise, rate_per_second, AGAIN_REQUESTS, AGAIN_SEED, MOST_ERRORS)


def _verdict(
    cost: IterationCost,
    limits: BatchingLimits,
    lengths: TokenLengths,
    promise: TokenPromise,
    rate_per_second: float,
    requests: int,
    seed: int,
    errors: float,
) -> TokenVerdict:
    run = serve_stream(cost, limits, stream(lengths, requests, seed), rate_per_second)
    assert run is not None  # nothing stops it early
    skipped = round(SKIPPED_SHARE * requests)
    ttft_ms, tpot_ms = run.ttft_ms[skipped:], run.tpot_ms[skipped:]
    wanted = promise.percentile / 100
    all_requests = np.ones(len(ttft_ms), dtype=bool)
    ttft = _share(ttft_ms <= promise.ttft_ms, all_requests, wanted)
    tpot = _share(tpot_ms <= promise.tpot_ms, ~np.isnan(tpot_ms), wanted)
    memory = _share((run.preempted[skipped:] == 0) & np.isfinite(ttft_ms), all_requests, IN_MEMORY_SHARE)
    kept = ttft.kept(errors) and tpot.kept(errors) and memory.kept(0)
    return TokenVerdict(
        kept, ttft, tpot, memory, run.preemptions, run.too_long, run.peak_kv_tokens,
        run.busy_ms / run.end_ms, run.mean_sequences, requests,
    )  # fmt: skip


def _share(kept: NDArray[np.bool_], counted: NDArray[np.bool_], wanted: float) -> KeptShare:
    """Returns the share of the counted requests that are kept, and its standard error from the means of 30 blocks."""
    if not counted.any():
        return KeptShare(1.0, 0.0, wanted)
    length = len(kept) // BLOCKS
    numbers = counted[: BLOCKS * length].reshape(BLOCKS, length).sum(axis=1)
    sums = (kept & counted)[: BLOCKS * length].reshape(BLOCKS, length).sum(axis=1)
    means = sums[numbers > 0] / numbers[numbers > 0]
    error = float(means.std(ddof=1)) / sqrt(len(means)) if len(means) > 1 else 0.0
    return KeptShare(float((kept & counted).sum() / counted.sum()), error, wanted)
