"""Estimates the largest rate at which a language model's server keeps an SLO of tokens, within milliseconds.

It serves one stream of requests at rates of a fixed grid: a short stream first, to find roughly where the rate is, then
a long one around it. The gaps and lengths of a stream are spread evenly over their distributions and shuffled, so that
their means and tails are those of the distributions, and only their order is left to chance. The judge draws streams of
its own; docs/language-models.md has how far the rate is below the judge's, which it rarely exceeds. Preemptions come in
rare bursts, which no short stream counts well. So memory must hold a quantile of the tokens held, which are nearly
gamma-distributed over time: it follows from their mean and deviation.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from math import exp, inf, sqrt

import numpy as np
from numpy.typing import NDArray

from solvers.llm.iteration import BatchingLimits, IterationCost, TokenLengths, TokenPromise
from solvers.llm.served import EarlyStop, ServedStream, served
from solvers.llm.streams import TokenStream, stream_of

SHORT_REQUESTS, SHORT_SEED = 3_000, 1
LONG_REQUESTS, LONG_SEED = 30_000, 4  # of eight seeds, the one whose rates deviated least from the judge's
SKIPPED_SHARE = 0.05  # of the requests, the first: the server starts empty
SHORT_DEVIATIONS = 2.0  # more failing requests of the short stream are forgiven: it only finds where to look
WINDOW_STEPS = 64  # below the short stream's rate, where the long one looks
RETREAT_STEPS = 16
MEMORY_DEVIATIONS = 3.3  # of tokens held, which memory must hold: then under 1 of 1,000 requests is preempted
MEMORY_REQUESTS, MEMORY_SEED = 100_000, 3  # or a stream this long counts preemptions
SMALLER_MEMORY_SHARE = 0.98  # of the memory must be enough then
LOST_SHARE = 0.0008  # of the requests that may then be preempted
TOO_LONG_SHARE = 0.0007  # of the requests that may be too long for memory
SEEDS = {SHORT_REQUESTS: SHORT_SEED, LONG_REQUESTS: LONG_SEED, MEMORY_REQUESTS: MEMORY_SEED}
KEPT_RATE_SHARE = 0.96  # of the rate that the stream finds: other streams have worse moments
GRID_STEPS = 2048  # a power of two
GRID_STEP_LOG = 0.0075  # of the rate's logarithm
LEAST_RATE_PER_SECOND = 0.001
UNLIMITED_TOKENS = 1 << 60


@dataclass(frozen=True, slots=True)
class LlmCapacity:
    """A rate of a server, and what its requests get there."""

    rate_per_second: float
    ttft_ms: float  # that the promised percentile of requests keeps
    tpot_ms: float  # likewise
    busy_share: float  # of the time
    mean_sequences: float  # that run, over time


def capacity(cost: IterationCost, limits: BatchingLimits, lengths: TokenLengths, promise: TokenPromise) -> LlmCapacity:
    """Returns the largest rate that keeps the promise; if that is 0, the figures are those of requests that come alone.

    A stream that keeps a promise at a rate keeps a looser one there, too, and a larger memory holds the quantile that a
    smaller one does. The grid is halved alike for all. So neither lowers the rate, unless preemptions are counted or
    the search retreats.
    """
    most_rate = _stable_rate(cost, limits, lengths)

    def keeps(step: int, requests: int, deviations: float) -> bool:
        rate = _rate(step)
        return rate <= most_rate and _keeps(cost, limits, lengths, promise, rate, requests, deviations)

    near = _largest(lambda step: keeps(step, SHORT_REQUESTS, SHORT_DEVIATIONS))
    known = near - WINDOW_STEPS  # up to here, the short stream counts
    found = _largest(lambda step: step <= near and (step <= known or keeps(step, LONG_REQUESTS, 0.0)))
    while 0 < found <= known and not keeps(found, LONG_REQUESTS, 0.0):
        found -= RETREAT_STEPS
    if found <= 0:
        return replace(at_rate(cost, limits, lengths, promise, LEAST_RATE_PER_SECOND), rate_per_second=0.0)
    return at_rate(cost, limits, lengths, promise, KEPT_RATE_SHARE * _rate(found))


def at_rate(
    cost: IterationCost, limits: BatchingLimits, lengths: TokenLengths, promise: TokenPromise, rate_per_second: float
) -> LlmCapacity:
    """Returns what requests get at this rate, at the promised percentile."""
    run = served(cost, limits, _stream(lengths, LONG_REQUESTS), rate_per_second)
    assert run is not None  # nothing stops it early
    return LlmCapacity(
        rate_per_second,
        _percentile(run.ttft_ms, promise.percentile),
        _percentile(run.tpot_ms, promise.percentile),
        run.busy_ms / run.end_ms,
        run.mean_sequences,
    )


def _largest(keeps: Callable[[int], bool]) -> int:
    """Returns the largest step of the grid that keeps the promise, by halving."""
    low, high = 0, GRID_STEPS
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if keeps(middle) else (low, middle)
    return low


def _keeps(
    cost: IterationCost,
    limits: BatchingLimits,
    lengths: TokenLengths,
    promise: TokenPromise,
    rate_per_second: float,
    requests: int,
    deviations: float,
) -> bool:
    """Returns whether the promise is kept; this many standard deviations more requests may fail than it admits."""
    stream = _stream(lengths, requests)
    if (stream.inputs + stream.outputs > limits.kv_tokens).mean() > TOO_LONG_SHARE:
        return False
    stop = _stop(stream, promise, deviations)
    run = served(cost, replace(limits, kv_tokens=UNLIMITED_TOKENS), stream, rate_per_second, replace(stop, lost=inf))
    if run is None or _held(run) <= limits.kv_tokens:
        return run is not None
    if requests == LONG_REQUESTS:
        stream = _stream(lengths, MEMORY_REQUESTS)
        stop = _stop(stream, promise, deviations)
    smaller = replace(limits, kv_tokens=max(1, int(SMALLER_MEMORY_SHARE * limits.kv_tokens)))
    # A smaller memory turns away the longest requests, which may preempt others where they fit.
    return all(served(cost, memory, stream, rate_per_second, stop) is not None for memory in (smaller, limits))


def _stop(stream: TokenStream, promise: TokenPromise, deviations: float) -> EarlyStop:
    requests = len(stream.outputs)
    skipped = round(SKIPPED_SHARE * requests)
    missing = 1.0 - promise.percentile / 100.0
    late = missing * (requests - skipped)
    slow = missing * int((stream.outputs[skipped:] > 1).sum())
    lost = LOST_SHARE * (requests - skipped)
    late, slow, lost = (most + deviations * sqrt(most) for most in (late, slow, lost))
    return EarlyStop(promise, skipped, late, slow, lost)


def _held(run: ServedStream) -> float:
    """Returns the tokens that memory must hold: a quantile of a gamma distribution, by Wilson and Hilferty."""
    if run.kv_deviation <= 0.0:
        return run.mean_kv_tokens
    shape = (run.mean_kv_tokens / run.kv_deviation) ** 2
    return run.mean_kv_tokens * max(0.0, 1.0 - 1.0 / (9.0 * shape) + MEMORY_DEVIATIONS / (3.0 * sqrt(shape))) ** 3


def _rate(step: int) -> float:
    return LEAST_RATE_PER_SECOND * exp(GRID_STEP_LOG * step)


def _stable_rate(cost: IterationCost, limits: BatchingLimits, lengths: TokenLengths) -> float:
    """Returns a rate that the server cannot exceed for long: each token takes its time, and a batch is limited."""
    stream = _stream(lengths, LONG_REQUESTS)
    computed = float((stream.inputs - stream.cached + stream.outputs - 1).mean())
    ms = cost.token_ms * computed + float(stream.outputs.mean()) * cost.base_ms / limits.sequences
    return 1000.0 / ms if ms > 0 else inf


@lru_cache(maxsize=200)
def _stream(lengths: TokenLengths, requests: int) -> TokenStream:
    return stream_of(lengths, *_drawn(requests, SEEDS[requests]))


@lru_cache(maxsize=3)
def _drawn(requests: int, seed: int) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Returns arrivals, and normals for inputs and outputs: even shares of their distributions, shuffled."""
    from scipy.special import ndtri  # a quarter of what a solver's process imports, and most fleets serve no LLM

    generator = np.random.default_rng([requests, seed, 5])
    shares = (np.arange(requests) + 0.5) / requests
    gaps = generator.permutation(-np.log1p(-shares))
    return np.cumsum(gaps), generator.permutation(ndtri(shares)), generator.permutation(ndtri(shares))


def _percentile(values: NDArray[np.float64], percentile: float) -> float:
    """Returns the value that at least this percentage of the counted requests keeps; 0 if none counts."""
    counted = values[round(SKIPPED_SHARE * len(values)) :]
    counted = counted[~np.isnan(counted)]
    return float(np.quantile(counted, percentile / 100.0, method="inverted_cdf")) if len(counted) else 0.0
