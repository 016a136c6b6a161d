"""A load that a tool offers to a server, and the token times that a model of the server predicts for it."""

from __future__ import annotations

from dataclasses import astuple, dataclass

import numpy as np
from numpy.typing import NDArray

from solvers.llm.iteration import BatchingLimits, IterationCost
from solvers.llm.sweeps.kernels import replay

Floats = NDArray[np.float64]
NEVER_MS = 1e8  # a time that no request reached; finite, so that logarithms stay so
SETTLED_ROUNDS = 3.0  # of requests that a closed loop answers one after the other at each place
MOST_REQUESTS = 100_000
LEAST_TPOT_MS = 1.0  # a closed loop needs no more requests than such a server would answer


@dataclass(frozen=True, slots=True)
class LoadTest:
    """Requests at a rate, or so many at once all the time (a concurrency); lengths are uniform."""

    input_tokens: float  # mean
    output_tokens: float
    rate_per_second: float = 0.0
    concurrency: int = 0
    spread: float = 0.0  # lengths lie within (1 - spread, 1 + spread) of the mean
    seconds: float = 0.0  # how long it lasts; 0: until a closed loop has settled
    burst: int = 0  # requests at the start, beside those at the rate
    poisson: bool = False  # gaps are exponential; else even

    def __post_init__(self) -> None:
        if (self.rate_per_second > 0) == (self.concurrency > 0):
            given = f"rate {self.rate_per_second:g} a second and concurrency {self.concurrency}"
            raise ValueError(f"{given}: a load has one of the two above 0")
        if self.rate_per_second > 0 and not self.seconds > 0:
            raise ValueError(f"seconds {self.seconds:g} of a load at a rate is not above 0")
        if not (self.input_tokens >= 1 and self.output_tokens >= 1 and 0 <= self.spread < 1):
            given = f"{self.input_tokens:g} input and {self.output_tokens:g} output tokens with spread {self.spread:g}"
            raise ValueError(f"{given}: tokens are at least 1, and the spread is at least 0 and below 1")


@dataclass(frozen=True, slots=True)
class TokenTimes:
    """Means over the requests that ended; not a number where it was not measured."""

    ttft_ms: float
    tpot_ms: float


@dataclass(frozen=True, slots=True)
class MeasuredLoad:
    """The load that a tool offered, and its measurements."""

    load: LoadTest
    times: TokenTimes


@dataclass(frozen=True, slots=True)
class ServerModel:
    """A server's iterations, and what a first token waits for beside them."""

    cost: IterationCost
    limits: BatchingLimits
    request_ms: float = 0.0  # of each request, outside iterations: network, tokenizer
    late_iterations: int = 0  # 1: tokens are handed out while the next iteration is computed


@dataclass(frozen=True, slots=True, eq=False)
class ReplayedRequests:
    """When requests came, began and ended their answers, and how often each was preempted; -1 is never."""

    arrivals_ms: Floats
    first_ms: Floats
    second_ms: Floats  # the end of the iteration after the first token's
    last_ms: Floats
    preempted: NDArray[np.int64]
    ranks: NDArray[np.int64]  # that served them
    totals: Floats  # in the order of the compiled loop


def replay_requests(
    cost: IterationCost,
    limits: BatchingLimits,
    arrivals_ms: Floats,
    inputs: NDArray[np.int64],
    outputs: NDArray[np.int64],
    cached: NDArray[np.int64],
    concurrency: int = 0,
    until_ms: float = np.inf,
    ranks: NDArray[np.int64] | None = None,
) -> ReplayedRequests:
    """Returns what requests get from a server, each from its data rank where these are known."""
    first, second, last = (np.empty(len(inputs)) for _ in range(3))
    placed = np.full(len(inputs), -1) if ranks is None else ranks.copy()
    preempted = np.zeros(len(inputs), np.int64)
    times = ReplayedRequests(arrivals_ms.copy(), first, second, last, preempted, placed, np.zeros(5))
    engine = np.array([*limits.counts, *astuple(limits.form)], np.int64)
    replay(
        times.arrivals_ms, inputs, outputs, cached, np.array(astuple(cost)), engine, concurrency, until_ms,
        first, second, last, preempted, placed, times.totals,
    )  # fmt: skip
    return times


class OfferedRequests:
    """The requests of a load, drawn once, so that every model answers the same ones."""

    def __init__(self, load: LoadTest, seed: int = 0) -> None:
        self.load = load
        self.until_ms = load.seconds * 1e3 if load.seconds else np.inf
        self.arrivals_ms = _arrivals(load)
        generator = np.random.default_rng(seed)
        self.inputs = _lengths(generator, load.input_tokens, load.spread, len(self.arrivals_ms))
        self.outputs = _lengths(generator, load.output_tokens, load.spread, len(self.arrivals_ms))

    def answered(self, model: ServerModel) -> tuple[Floats, Floats, NDArray[np.int64]]:
        """Returns TTFT in ms of the requests that end in time, how long the rest of each took, and its tokens."""
        served = replay_requests(
            model.cost, model.limits, self.arrivals_ms, self.inputs, self.outputs, np.zeros_like(self.inputs),
            self.load.concurrency, self.until_ms,
        )  # fmt: skip
        ended = (served.last_ms >= 0) & (served.last_ms <= self.until_ms)
        received = served.second_ms if model.late_iterations else served.first_ms
        ttft_ms = (received - served.arrivals_ms)[ended] + model.request_ms
        return ttft_ms, (served.last_ms - served.first_ms)[ended], self.outputs[ended] - 1

    def times(self, model: ServerModel) -> TokenTimes:
        """Returns mean TTFT, and TPOT over all tokens after the first of each request."""
        ttft_ms, rest_ms, rest_tokens = self.answered(model)
        tokens = rest_tokens.sum()
        if not len(ttft_ms):
            return TokenTimes(NEVER_MS, NEVER_MS)
        if not self.load.seconds:  # the start of a closed loop, where all come at once, is no part of it
            settled = slice(min(self.load.concurrency, len(ttft_ms) // 2), None)
            ttft_ms = ttft_ms[settled]
        return TokenTimes(float(ttft_ms.mean()), float(rest_ms.sum() / tokens) if tokens else float("nan"))


def _arrivals(load: LoadTest) -> Floats:
    if load.concurrency:
        rounds = load.seconds * 1e3 / (load.output_tokens * LEAST_TPOT_MS) if load.seconds else SETTLED_ROUNDS
        return np.zeros(min(int(load.concurrency * (1 + rounds)), MOST_REQUESTS))
    count = min(int(load.seconds * load.rate_per_second), MOST_REQUESTS)
    times: Floats = np.arange(1, count + 1) / load.rate_per_second
    if load.poisson and count:
        gaps = np.random.default_rng(1).exponential(1.0, count)
        times = np.cumsum(gaps) * (count / (gaps.sum() * load.rate_per_second))
    times = np.concatenate([np.zeros(load.burst), times])
    result: Floats = times[times <= load.seconds] * 1e3
    return result


def _lengths(generator: np.random.Generator, mean: float, spread: float, count: int) -> NDArray[np.int64]:
    low, high = round(mean * (1 - spread)), round(mean * (1 + spread))
    return generator.integers(max(1, low), max(1, high) + 1, count)
