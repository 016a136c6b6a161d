"""Serves a stream of requests by the compiled simulation, and measures what the requests got."""

from __future__ import annotations

from dataclasses import astuple, dataclass
from math import inf
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from solvers.llm.iteration import BatchingLimits, IterationCost, TokenPromise
from solvers.llm.kernels import PLACES, serve
from solvers.llm.streams import TokenStream
from solvers.llm.sweeps.load import replay_requests

Value = TypeVar("Value", np.float64, np.int64)


@dataclass(frozen=True, slots=True)
class EarlyStop:
    """Ends a simulation as soon as more requests than these fail; those skipped do not count."""

    promise: TokenPromise
    skipped: int
    late: float  # requests whose first token is late
    slow: float  # requests that do not keep the pace
    lost: float  # requests that are preempted, or too long for memory


@dataclass(frozen=True, slots=True, eq=False)
class ServedStream:
    """The measurements of a simulation: a value for each request, and totals."""

    ttft_ms: NDArray[np.float64]  # infinite for a request that is too long
    tpot_ms: NDArray[np.float64]  # likewise; not a number for a request of one token
    preempted: NDArray[np.int64]  # how often
    iterations: int
    busy_ms: float
    end_ms: float
    peak_kv_tokens: int
    mean_sequences: float  # that run, over time
    too_long: int  # requests that do not fit into memory alone: nothing serves them

    @property
    def preemptions(self) -> int:
        return int(self.preempted.sum())


def serve_stream(
    cost: IterationCost,
    limits: BatchingLimits,
    stream: TokenStream,
    rate_per_second: float,
    stop: EarlyStop | None = None,
) -> ServedStream | None:
    """Serves the stream at this rate; returns None if it stopped early."""
    if len(stream.arrivals) >= PLACES:
        raise ValueError(f"{len(stream.arrivals)} requests are too many; at most {PLACES - 1} can be simulated")
    if limits.form.data_ranks > 1:
        return _serve_ranks(cost, limits, stream, rate_per_second)
    fits = stream.inputs + stream.outputs <= limits.kv_tokens
    served_part = stream if fits.all() else stream.of(fits)
    count = len(served_part.arrivals)
    first, last, totals = np.zeros(count), np.zeros(count), np.zeros(6)
    preempted = np.zeros(count, dtype=np.int64)
    unit_ms = 1000.0 / rate_per_second
    serve(
        served_part.arrivals, unit_ms, served_part.inputs, served_part.outputs, served_part.cached,
        np.array(astuple(cost)), np.array(limits.counts), _stops(stop, stream, fits),
        first, last, preempted, totals,
    )  # fmt: skip
    if totals[5]:
        return None
    tokens = served_part.outputs - 1
    tpot = np.where(tokens > 0, (last - first) / np.maximum(tokens, 1), np.nan)
    end = max(float(totals[2]), 1e-300)  # it is 0 if no request fits
    return ServedStream(
        _insert_too_long(first - served_part.arrivals * unit_ms, fits, inf),
        _insert_too_long(tpot, fits, inf),
        _insert_too_long(preempted, fits, 0),
        int(totals[0]), float(totals[1]), end, int(totals[3]), float(totals[4]) / end,
        int((~fits).sum()),
    )  # fmt: skip


def _serve_ranks(
    cost: IterationCost, limits: BatchingLimits, stream: TokenStream, rate_per_second: float
) -> ServedStream:
    """Serves the stream by ranks with queues of their own; it never stops early."""
    arrivals = stream.arrivals * (1000.0 / rate_per_second)
    times = replay_requests(cost, limits, arrivals, stream.inputs, stream.outputs, stream.cached)
    never = times.last_ms < 0
    tokens = stream.outputs - 1
    tpot = np.where(tokens > 0, (times.last_ms - times.first_ms) / np.maximum(tokens, 1), np.nan)
    iterations, busy_ms, end_ms, peak, area = times.totals.tolist()
    end_ms = max(end_ms, 1e-300)  # it is 0 if no request fits
    if not limits.form.experts:  # each rank has iterations of its own
        busy_ms /= limits.form.data_ranks
    return ServedStream(
        np.where(never, inf, times.first_ms - arrivals), np.where(never, inf, tpot), times.preempted,
        int(iterations), busy_ms, end_ms, int(peak), area / end_ms, int(never.sum()),
    )  # fmt: skip


def _stops(stop: EarlyStop | None, stream: TokenStream, fits: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Returns what stops the compiled loop, which sees only the requests that fit into memory alone."""
    if stop is None:
        return np.array([inf, inf, 0.0, inf, inf, inf])
    skipped = float(fits[: stop.skipped].sum())
    too_long = float((~fits)[stop.skipped :].sum())
    promise = stop.promise
    return np.array(
        [promise.ttft_ms, promise.tpot_ms, skipped, stop.late - too_long, stop.slow - too_long, stop.lost - too_long]
    )


def _insert_too_long(values: NDArray[Value], fits: NDArray[np.bool_], value: float) -> NDArray[Value]:
    """Returns the values of all requests, this value for those that are too long for memory."""
    if fits.all():
        return values
    found = np.full(len(fits), value, dtype=values.dtype)
    found[fits] = values
    return found
