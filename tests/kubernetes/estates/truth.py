"""What replicas truly carry, request by request, in plain queues. It shares nothing with the product."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from heapq import heapify, heappop, heappush, heapreplace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from tests.kubernetes.estates.shapes import Series

MINUTE = 60.0


@dataclass(frozen=True)
class Served:
    """Requests in the order in which they came."""

    done: Series  # seconds from the beginning
    replica: NDArray[np.int64]
    times_ms: Mapping[str, Series]  # `latency`, or `first_token` and `token`
    input_tokens: Series
    output_tokens: Series

    def quantile_ms(self, time: str, percentile: float) -> float:
        return float(np.percentile(self.times_ms[time], percentile, method="higher")) if len(self.done) else 0.0


class TrueReplica(Protocol):
    """How one replica of a workload serves."""

    @property
    def server(self) -> str:
        """Returns whose counters it has."""

    def serve(self, rates: Series, replicas: NDArray[np.int64], noise: np.random.Generator) -> Served:
        """Serves these requests a second by so many replicas, minute by minute."""


@dataclass(frozen=True)
class OneAtATime:
    """Serves one request after the other; `spread` is 0 for equal requests and 1 for wildly different ones."""

    seconds: float
    spread: float
    is_pooled: bool  # the replica that is free first takes the next request; else any one
    server: str

    def serve(self, rates: Series, replicas: NDArray[np.int64], noise: np.random.Generator) -> Served:
        came, there = arrivals(rates, replicas, noise)
        work = self.seconds * ((1 - self.spread) + self.spread * noise.exponential(1.0, len(came)))
        if self.is_pooled:
            done, replica = _serve_pooled(came, there, work)
        else:
            replica = (noise.random(len(came)) * there).astype(np.int64)
            done = np.empty_like(came)
            for each in range(int(replicas.max())):
                mine = replica == each
                done[mine] = serve_in_turn(came[mine], work[mine])
        nothing = np.zeros(0)
        return Served(done, replica, {"latency": 1000 * (done - came)}, nothing, nothing)


def arrivals(
    rates: Series, replicas: NDArray[np.int64], noise: np.random.Generator
) -> tuple[Series, NDArray[np.int64]]:
    """Returns when requests come, and how many replicas are there then."""
    counts = noise.poisson(rates * MINUTE)
    came = np.repeat(np.arange(len(rates)) * MINUTE, counts) + noise.uniform(0, MINUTE, int(counts.sum()))
    came.sort()
    return came, replicas[(came // MINUTE).astype(int)]


def serve_in_turn(came: Series, work: Series) -> Series:
    """Returns when one server is done with each: it begins when the request has come and the one before is done."""
    if not len(came):
        return came
    total = np.cumsum(work)
    found: Series = total + np.maximum.accumulate(came - (total - work))
    return found


def _serve_pooled(came: Series, there: NDArray[np.int64], work: Series) -> tuple[Series, NDArray[np.int64]]:
    free = [(0.0, each) for each in range(int(there[0]) if len(there) else 0)]
    done, replica = np.empty_like(came), np.empty(len(came), np.int64)
    for at, (now, count, takes) in enumerate(zip(came.tolist(), there.tolist(), work.tolist(), strict=True)):
        if count != len(free):
            held = {each: until for until, each in free}
            free = [(held.get(each, now), each) for each in range(count)]
            heapify(free)
        until, each = free[0]
        until = max(now, until) + takes
        heapreplace(free, (until, each))
        done[at], replica[at] = until, each
    return done, replica


@dataclass(frozen=True)
class LanguageModel:
    """Serves up to `slots` requests at once, and each token of all takes longer by those beside it."""

    slots: int
    prefill_ms: float  # for each thousand tokens of input
    token_ms: float
    slower_ms: float  # by each other request
    input_tokens: float
    output_tokens: float
    server: str

    def serve(self, rates: Series, replicas: NDArray[np.int64], noise: np.random.Generator) -> Served:
        came, there = arrivals(rates, replicas, noise)
        count = len(came)
        asked = np.maximum(8, noise.gamma(4.0, self.input_tokens / 4.0, count)).round()
        made = np.maximum(2, noise.gamma(2.0, self.output_tokens / 2.0, count)).round()
        replica = (noise.random(count) * there).astype(np.int64)
        done, first, token = np.empty(count), np.empty(count), np.empty(count)
        running: list[list[float]] = [[] for _ in range(int(replicas.max()))]
        for at, (now, each, long, tokens) in enumerate(
            zip(came.tolist(), replica.tolist(), asked.tolist(), made.tolist(), strict=True)
        ):
            ends = running[each]
            begin = now
            while ends and ends[0] <= now:
                heappop(ends)
            if len(ends) >= self.slots:
                begin = heappop(ends)
            speed = self.token_ms + self.slower_ms * len(ends)
            first[at] = 1000 * (begin - now) + self.prefill_ms * long / 1000 + speed
            token[at] = speed
            done[at] = now + (first[at] + speed * (tokens - 1)) / 1000
            heappush(ends, float(done[at]))
        return Served(done, replica, {"first_token": first, "token": token}, asked, made)
