"""Serves a stream of the planner's own at a rate, and counts how many more requests miss the promise than may.

The gaps and lengths of these streams are spread evenly over their distributions and shuffled, so that their means and
tails are those of the distributions, and only their order is left to chance.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import log, sqrt

import numpy as np
from numpy.typing import NDArray

from solvers.llm.iteration import BatchingLimits, IterationCost, TokenLengths, TokenPromise
from solvers.llm.judged import AGAIN_REQUESTS, IN_MEMORY_SHARE, MOST_ERRORS, SKIPPED_SHARE
from solvers.llm.served import ServedStream, serve_stream
from solvers.llm.streams import TokenStream, stream_of

SHORT_REQUESTS, ROUGH_REQUESTS, SURE_REQUESTS, LONGEST_REQUESTS = 3_000, 30_000, 100_000, 1_000_000
SEEDS: Mapping[int, int] = {SHORT_REQUESTS: 1, ROUGH_REQUESTS: 4, SURE_REQUESTS: 7, LONGEST_REQUESTS: 7}
BLOCKS = 30
TIMES_DOUBT, MEMORY_DOUBT = 3.0, 2.6  # deviations of the difference between the judge's stream and ours
FEWEST_MISSED = 1e-9  # of all requests, so that a logarithm exists


@dataclass(frozen=True, slots=True)
class MissedShare:
    """The share of requests that miss a promise, its standard error, and the share that may."""

    share: float
    error: float
    most: float

    def excess(self, errors: float) -> float:
        """Returns by how much the share, and this many errors more, exceeds what may miss: a logarithm."""
        return log(max(FEWEST_MISSED, self.share + errors * self.error) / self.most)


@dataclass(frozen=True, slots=True, eq=False)
class Look:
    """The stream as it was served at a rate, and the shares of its requests that miss each promise."""

    run: ServedStream
    ttft: MissedShare
    tpot: MissedShare
    memory: MissedShare  # requests that are preempted or too long

    @property
    def excess(self) -> float:
        """Returns more than 0 if this stream misses the promise."""
        return max(missed.excess(0.0) for missed in (self.ttft, self.tpot, self.memory))

    def doubtful_excess(self, requests: int) -> float:
        """Returns more than 0 if the judge's streams may miss the promise, where so many requests of ours get the same.

        Of late and slow requests the judge's last stream forgives some standard errors, of lost ones it forgives none.
        """
        fewer = sqrt(len(self.run.ttft_ms) / requests)  # errors, than of this stream
        part = requests / AGAIN_REQUESTS
        times = fewer * max(0.0, TIMES_DOUBT * sqrt(1 + part) - MOST_ERRORS * sqrt(part))
        memory = fewer * MEMORY_DOUBT * sqrt(1 + part)
        return max(self.ttft.excess(times), self.tpot.excess(times), self.memory.excess(memory))


def look(
    cost: IterationCost,
    limits: BatchingLimits,
    lengths: TokenLengths,
    promise: TokenPromise,
    requests: int,
    rate_per_second: float,
) -> Look:
    """Returns what so many requests get at this rate."""
    run = serve_stream(cost, limits, make_planned_stream(lengths, requests), rate_per_second)
    assert run is not None  # nothing stops it early
    skipped = round(SKIPPED_SHARE * requests)
    ttft_ms, tpot_ms = run.ttft_ms[skipped:], run.tpot_ms[skipped:]
    most = 1.0 - promise.percentile / 100.0
    lost = (run.preempted[skipped:] > 0) | np.isinf(ttft_ms)
    return Look(
        run,
        _count_missed(ttft_ms > promise.ttft_ms, None, most),
        _count_missed(tpot_ms > promise.tpot_ms, ~np.isnan(tpot_ms), most),
        _count_missed(lost, None, 1.0 - IN_MEMORY_SHARE),
    )


def _count_missed(missed: NDArray[np.bool_], counted: NDArray[np.bool_] | None, most: float) -> MissedShare:
    """Returns the share of the counted requests that miss; its error comes from blocks in order of arrival."""
    length = len(missed) // BLOCKS
    sums = np.array([np.count_nonzero(block) for block in missed[: BLOCKS * length].reshape(BLOCKS, length)])
    numbers = np.full(BLOCKS, length)
    if counted is not None:
        numbers = np.array([np.count_nonzero(block) for block in counted[: BLOCKS * length].reshape(BLOCKS, length)])
    if not numbers.any():
        return MissedShare(0.0, 0.0, most)
    shares = sums[numbers > 0] / numbers[numbers > 0]
    error = float(shares.std(ddof=1)) / sqrt(len(shares)) if len(shares) > 1 else 0.0
    return MissedShare(float(sums.sum() / numbers.sum()), error, most)


def make_planned_stream(lengths: TokenLengths, requests: int) -> TokenStream:
    """Returns the planner's stream of so many requests, always the same."""
    return _short_stream(lengths, requests) if requests <= ROUGH_REQUESTS else _long_stream(lengths, requests)


@lru_cache(maxsize=100)
def _short_stream(lengths: TokenLengths, requests: int) -> TokenStream:
    return stream_of(lengths, *_drawn(requests))


@lru_cache(maxsize=3)  # 24 MB each
def _long_stream(lengths: TokenLengths, requests: int) -> TokenStream:
    return stream_of(lengths, *_drawn(requests))


@lru_cache(maxsize=len(SEEDS))
def _drawn(requests: int) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Returns arrivals, and normals for inputs and outputs: even shares of their distributions, shuffled."""
    from scipy.special import ndtri  # a quarter of what a solver's process imports, and most fleets serve no LLM

    generator = np.random.default_rng([requests, SEEDS[requests], 5])
    shares = (np.arange(requests) + 0.5) / requests
    gaps = generator.permutation(-np.log1p(-shares))
    return np.cumsum(gaps), generator.permutation(ndtri(shares)), generator.permutation(ndtri(shares))
