"""Finds the largest rate at which a language model's server keeps an SLO of tokens, for planners.

It looks at streams of its own at rates of a fixed grid. Short ones find roughly where the rate is. Then one as long as
the judge's must keep the promise with so much room that the judge's keep it, too. Where that room costs much, a longer
one follows, which needs less. docs/token-model.md has how far the rate is below the judge's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from math import ceil, exp, floor, inf, log, sqrt

import numpy as np
from numpy.typing import NDArray

from solvers.llm.iteration import BatchingLimits, IterationCost, TokenLengths, TokenPromise
from solvers.llm.judged import IN_MEMORY_SHARE, SKIPPED_SHARE
from solvers.llm.looks import LONGEST_REQUESTS, ROUGH_REQUESTS, SHORT_REQUESTS, SURE_REQUESTS, look, make_planned_stream
from solvers.llm.served import EarlyStop, ServedStream, serve_stream

SHORT_DEVIATIONS = 2.0  # more failing requests of the short stream are forgiven: it only finds where to look
DEAR_STEPS = 4  # of the grid: where the room for doubt costs more, a longer stream is looked at


@dataclass(frozen=True, slots=True)
class LlmCapacity:
    """A rate of a server, and what its requests get there."""

    rate_per_second: float
    ttft_ms: float  # that the promised percentile of requests keeps
    tpot_ms: float  # likewise
    busy_share: float  # of the time
    mean_sequences: float  # that run, over time


@dataclass(slots=True)
class _ServerLooks:
    """The looks at a server with streams of one length; each rate is looked at once."""

    cost: IterationCost
    limits: BatchingLimits
    lengths: TokenLengths
    promise: TokenPromise
    requests: int
    excesses: dict[int, tuple[float, ...]] = field(default_factory=dict)
    kept: ServedStream | None = None  # at the largest step that keeps the promise beyond doubt
    kept_step: int = 0

    def excess(self, step: int) -> float:
        return self._look_at_step(step)[0]

    def doubtful_excess(self, step: int) -> float:
        return self._look_at_step(step)[1]

    def bound_excess(self, step: int) -> float:
        """Returns the excess beyond doubt of a longer stream that gets the same."""
        return self._look_at_step(step)[2]

    def _look_at_step(self, step: int) -> tuple[float, ...]:
        if step not in self.excesses:
            found = look(self.cost, self.limits, self.lengths, self.promise, self.requests, rate_of(step))
            doubtful = found.doubtful_excess(self.requests)
            self.excesses[step] = found.excess, doubtful, found.doubtful_excess(LONGEST_REQUESTS)
            if doubtful <= 0 and step > self.kept_step:
                self.kept, self.kept_step = found.run, step
        return self.excesses[step]


def capacity(cost: IterationCost, limits: BatchingLimits, lengths: TokenLengths, promise: TokenPromise) -> LlmCapacity:
    """Returns the largest rate that keeps the promise; if that is 0, the figures are those of requests that come alone.

    Of two promises or memories the looser one is nearly always kept wherever the tighter is: they see the same streams.
    """
    most = step_of(_stable_rate(cost, limits, lengths))
    step = _rough_step(cost, limits, lengths, promise, most)
    looks = _ServerLooks(cost, limits, lengths, promise, SURE_REQUESTS)
    if step:
        step = largest(looks.doubtful_excess, step, most)
        if looks.bound_excess(min(step + DEAR_STEPS, most)) <= 0:
            step = largest(looks.bound_excess, step + DEAR_STEPS, most)
            looks = _ServerLooks(cost, limits, lengths, promise, LONGEST_REQUESTS)
            step = largest(looks.doubtful_excess, step, most)
    if looks.kept is None:
        return replace(find_capacity(cost, limits, lengths, promise, LEAST_RATE_PER_SECOND), rate_per_second=0.0)
    return _figures(looks.kept, promise, rate_of(step))


def rough_rate(cost: IterationCost, limits: BatchingLimits, lengths: TokenLengths, promise: TokenPromise) -> float:
    """Returns about the largest rate that keeps the promise, sooner than `capacity`: it tells servers apart."""
    step = _rough_step(cost, limits, lengths, promise, step_of(_stable_rate(cost, limits, lengths)))
    return rate_of(step) if step else 0.0


def find_capacity(
    cost: IterationCost, limits: BatchingLimits, lengths: TokenLengths, promise: TokenPromise, rate_per_second: float
) -> LlmCapacity:
    """Returns what requests get at this rate, at the promised percentile."""
    run = serve_stream(cost, limits, make_planned_stream(lengths, SURE_REQUESTS), rate_per_second)
    assert run is not None  # nothing stops it early
    return _figures(run, promise, rate_per_second)


def _figures(run: ServedStream, promise: TokenPromise, rate_per_second: float) -> LlmCapacity:
    return LlmCapacity(
        rate_per_second,
        _percentile(run.ttft_ms, promise.percentile),
        _percentile(run.tpot_ms, promise.percentile),
        run.busy_ms / run.end_ms,
        run.mean_sequences,
    )


def _rough_step(
    cost: IterationCost, limits: BatchingLimits, lengths: TokenLengths, promise: TokenPromise, most: int
) -> int:
    """Returns about the largest step of the grid that keeps the promise, from short streams."""
    stream, low, high = make_planned_stream(lengths, SHORT_REQUESTS), 0, STEPS
    stop = _stop(stream.outputs, promise)
    while high - low > 1:
        middle = (low + high) // 2
        kept = middle <= most and serve_stream(cost, limits, stream, rate_of(middle), stop) is not None
        low, high = (middle, high) if kept else (low, middle)
    if not low:
        return 0
    return largest(_ServerLooks(cost, limits, lengths, promise, ROUGH_REQUESTS).excess, low, most)


def _stop(outputs: NDArray[np.int64], promise: TokenPromise) -> EarlyStop:
    requests = len(outputs)
    skipped = round(SKIPPED_SHARE * requests)
    missing = 1.0 - promise.percentile / 100.0
    late = missing * (requests - skipped)
    slow = missing * int((outputs[skipped:] > 1).sum())
    lost = (1.0 - IN_MEMORY_SHARE) * (requests - skipped)
    late, slow, lost = (most + SHORT_DEVIATIONS * sqrt(most) for most in (late, slow, lost))
    return EarlyStop(promise, skipped, late, slow, lost)


def _stable_rate(cost: IterationCost, limits: BatchingLimits, lengths: TokenLengths) -> float:
    """Returns a rate that the server cannot exceed for long: each token takes its time, and a batch is limited."""
    stream = make_planned_stream(lengths, ROUGH_REQUESTS)
    computed = float((stream.inputs - stream.cached + stream.outputs - 1).mean())
    ms = cost.token_ms * computed + float(stream.outputs.mean()) * cost.base_ms / limits.sequences
    return 1000.0 * limits.form.data_ranks / ms if ms > 0 else inf


def _percentile(values: NDArray[np.float64], percentile: float) -> float:
    """Returns the value that at least this percentage of the counted requests keeps; 0 if none counts."""
    counted = values[round(SKIPPED_SHARE * len(values)) :]
    counted = counted[~np.isnan(counted)]
    return float(np.quantile(counted, percentile / 100.0, method="inverted_cdf")) if len(counted) else 0.0


STEPS = 2048
STEP_LOG = 0.0075  # of the rate's logarithm
LEAST_RATE_PER_SECOND = 0.001
FIRST_LEAP = 2  # of steps, where nothing says how fast the excess rises
MOST_LEAP = 64
MOST_EXCESS = 3.0  # that lines between looks go by: an overloaded server misses everything


def rate_of(step: int) -> float:
    """Returns the rate of this step."""
    return LEAST_RATE_PER_SECOND * exp(STEP_LOG * step)


def step_of(rate_per_second: float) -> int:
    """Returns the largest step whose rate is at most this one."""
    if rate_per_second < LEAST_RATE_PER_SECOND:
        return 0
    return floor(min(STEPS - 1, log(rate_per_second / LEAST_RATE_PER_SECOND) / STEP_LOG))


def largest(excess: Callable[[int], float], start: int, most: int) -> int:
    """Returns a step with an excess of at most 0 whose next has more, at most this one; 0 where none has.

    Where the excess rises with the step there is only one, wherever the search starts. It follows the line through the
    last two looks until the step is between two of them, and then halves what is left every other time.
    """
    low, high = 0, most + 1
    looks: dict[int, float] = {}
    step = max(1, min(start, most))
    while high - low > 1:
        looks[step] = min(MOST_EXCESS, max(-MOST_EXCESS, excess(step)))
        low, high = (step, high) if looks[step] <= 0 else (low, step)
        if high not in looks:
            step = min(low + _leap(looks), most)
        elif low not in looks:
            step = max(high - _leap(looks), 1)
        else:
            share = 0.5 if len(looks) % 2 else looks[low] / (looks[low] - looks[high])
            step = min(high - 1, max(low + 1, low + round(share * (high - low))))
    return low


def _leap(looks: Mapping[int, float]) -> int:
    """Returns how far the step is beyond the last look, all looks being on one side of it."""
    if len(looks) == 1:
        return FIRST_LEAP
    (before, first), (last, second) = list(looks.items())[-2:]
    rise = abs(first - second) / abs(last - before)
    wanted = 1 + ceil(abs(second) / rise) if abs(second) < rise * MOST_LEAP else MOST_LEAP
    return min(wanted, 4 * abs(last - before))
