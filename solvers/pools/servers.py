"""Servers of a language model, groups of them that serve alike, and the shares of requests that keep a promise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from solvers.llm.iteration import BatchingLimits, IterationCost, TokenLengths, TokenPromise
from solvers.llm.judged import IN_MEMORY_SHARE, SKIPPED_SHARE
from solvers.llm.served import serve_stream
from solvers.llm.streams import TokenStream, stream

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


class RequestSource(Protocol):
    """Where the requests of a simulation come from."""

    def draw_requests(self, requests: int, seed: int) -> TokenStream:
        """Returns so many requests of this seed; a gap between two arrivals is 1 on average."""


@dataclass(frozen=True, slots=True)
class DeclaredRequests:
    """Requests with the lengths that a service declares."""

    lengths: TokenLengths

    def draw_requests(self, requests: int, seed: int) -> TokenStream:
        return stream(self.lengths, requests, seed)


@dataclass(frozen=True, slots=True)
class RatedServer:
    """A server in a shape, and the rate that it carries."""

    gpu_type: str
    degree: int
    cost: IterationCost
    limits: BatchingLimits
    rate_per_second: float
    gpu_price_per_hour: float
    variant: str = ""  # of its model; empty: the only one

    @property
    def cost_per_hour(self) -> float:
        return self.degree * self.gpu_price_per_hour


@dataclass(frozen=True, eq=False)
class ServerGroup:
    """Servers alike, each with the same share of the service's requests."""

    server: RatedServer
    count: int
    rate_per_second: float  # of all of them, where the whole service has the rate that was planned for
    source: RequestSource | None = None  # of the requests to be sent here; None: of any of the service


@dataclass(frozen=True, slots=True)
class ServedShares:
    """The shares of a service's requests that get their first token in time, keep the pace, and keep their memory."""

    ttft: float
    tpot: float
    memory: float

    def keeps(self, promise: TokenPromise) -> bool:
        """Returns whether the promise holds for the service as a whole."""
        wanted = promise.percentile / 100
        return self.ttft >= wanted and self.tpot >= wanted and self.memory >= IN_MEMORY_SHARE


@dataclass(frozen=True, slots=True)
class RequestTrial:
    """What a simulation sends: requests of a source, at a rate, that were promised something."""

    source: RequestSource
    promise: TokenPromise
    rate_per_second: float
    requests: int
    seed: int


class SizedServers(Protocol):
    """The servers that a planner chose for a service."""

    @property
    def cost_per_hour(self) -> float:
        """Returns what they cost."""

    @property
    def gpu_counts(self) -> dict[str, int]:
        """Returns their GPUs by type."""

    def simulate(self, trial: RequestTrial) -> ServedShares:
        """Returns what requests get, by simulation."""


@dataclass(frozen=True, eq=False)
class TogetherServers:
    """Servers that compute prompts and answers together."""

    groups: Sequence[ServerGroup]

    @property
    def cost_per_hour(self) -> float:
        return sum_costs(self.groups)

    @property
    def gpu_counts(self) -> dict[str, int]:
        return count_gpus_of(self.groups)

    def simulate(self, trial: RequestTrial) -> ServedShares:
        """Returns what requests get: one server of each group is simulated."""
        planned = sum(group.rate_per_second for group in self.groups)
        counted = np.zeros(4)
        for group in self.groups:
            part = group.rate_per_second / planned
            requests = (group.source or trial.source).draw_requests(trial.requests, trial.seed)
            run = serve_stream(
                group.server.cost, group.server.limits, requests, trial.rate_per_second * part / group.count
            )
            assert run is not None  # nothing stops it early
            counted += part * count_kept(run.ttft_ms, run.tpot_ms, run.preempted, trial.promise)
        return read_shares(counted)


def count_kept(ttft_ms: Floats, tpot_ms: Floats, preempted: Integers, promise: TokenPromise) -> Floats:
    """Returns the shares that keep TTFT, TPOT and memory, and that have no TPOT, without the requests at the start."""
    first = round(SKIPPED_SHARE * len(ttft_ms))
    ttft, tpot, lost = ttft_ms[first:], tpot_ms[first:], preempted[first:]
    kept = ttft <= promise.ttft_ms, tpot <= promise.tpot_ms, (lost == 0) & np.isfinite(ttft), np.isnan(tpot)
    return np.array([float(each.mean()) for each in kept])


def read_shares(counted: Floats) -> ServedShares:
    """Returns the shares of `count_kept`; a request of one token has no pace to keep."""
    ttft, tpot, memory, unpaced = (float(value) for value in counted)
    return ServedShares(ttft, tpot / (1 - unpaced) if unpaced < 1 else 1.0, memory)


def sum_costs(groups: Sequence[ServerGroup]) -> float:
    """Returns what the groups' GPUs cost an hour."""
    return sum(group.count * group.server.cost_per_hour for group in groups)


def count_gpus_of(groups: Sequence[ServerGroup]) -> dict[str, int]:
    """Returns the groups' GPUs by type."""
    found: dict[str, int] = {}
    for group in groups:
        name = group.server.gpu_type
        found[name] = found.get(name, 0) + group.count * group.server.degree
    return dict(sorted(found.items()))
