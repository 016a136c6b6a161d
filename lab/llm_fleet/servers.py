"""Servers of a language model, groups of them that serve alike, and what the trace's requests get from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import Bounds, LinearConstraint, milp

from lab.llm_fleet.catalogue import gpu_cost_per_hour
from lab.llm_fleet.trace import TracedRequests
from solvers.llm.iteration import BatchingLimits, IterationCost
from solvers.llm.judged import IN_MEMORY_SHARE, SKIPPED_SHARE
from solvers.llm.served import serve_stream
from solvers.planning.fleet.offers import read_offers
from solvers.planning.fleet.token_shapes import TokenShape
from solvers.planning.judge.whole import MOST_SEQUENCES, iterations, kv_tokens
from solvers.planning.language import TokenPromise
from solvers.planning.problem import Problem, Service

Floats = NDArray[np.float64]
SEED = 11  # of the requests that every plan is judged by; no planner draws from it


@dataclass(frozen=True, slots=True)
class RatedServer:
    """A server in a shape, and the rate that it carries."""

    gpu_type: str
    degree: int
    cost: IterationCost
    limits: BatchingLimits
    rate_per_second: float

    @property
    def cost_per_hour(self) -> float:
        return self.degree * gpu_cost_per_hour(self.gpu_type)


@dataclass(frozen=True, eq=False)
class ServerGroup:
    """Servers alike, each with the same share of the service's requests."""

    server: RatedServer
    count: int
    rate_per_second: float  # of all of them, where the whole service has the rate that was planned for
    weights: Floats | None = None  # of each request of the trace to be sent here; None: all alike


@dataclass(frozen=True, slots=True)
class ServedShares:
    """The shares of a service's requests that get their first token in time, keep the pace, and keep their memory."""

    ttft: float
    tpot: float
    memory: float

    def keep(self, promise: TokenPromise) -> bool:
        """Returns whether the promise holds for the service as a whole."""
        wanted = promise.percentile / 100
        return self.ttft >= wanted and self.tpot >= wanted and self.memory >= IN_MEMORY_SHARE


class SizedServers(Protocol):
    """The servers that a planner chose for a service."""

    @property
    def cost_per_hour(self) -> float:
        """Returns what they cost."""

    @property
    def gpu_counts(self) -> dict[str, int]:
        """Returns their GPUs by type."""

    def shares(
        self, trace: TracedRequests, promise: TokenPromise, rate_per_second: float, requests: int
    ) -> ServedShares:
        """Returns what requests get at this rate, by simulation."""


@dataclass(frozen=True, eq=False)
class MixedServers:
    """Servers that compute prompts and answers together."""

    groups: Sequence[ServerGroup]

    @property
    def cost_per_hour(self) -> float:
        return cost_of(self.groups)

    @property
    def gpu_counts(self) -> dict[str, int]:
        return gpus_of(self.groups)

    def shares(
        self, trace: TracedRequests, promise: TokenPromise, rate_per_second: float, requests: int
    ) -> ServedShares:
        """Returns what requests get: one server of each group is simulated."""
        planned = sum(group.rate_per_second for group in self.groups)
        counted = np.zeros(4)
        for group in self.groups:
            part = group.rate_per_second / planned
            rate = rate_per_second * part / group.count
            run = serve_stream(group.server.cost, group.server.limits, trace.drawn(requests, SEED, group.weights), rate)
            assert run is not None  # nothing stops it early
            counted += part * kept_counts(run.ttft_ms, run.tpot_ms, run.preempted, promise) / requests
        return shares_of(counted)


def kept_counts(ttft_ms: Floats, tpot_ms: Floats, preempted: NDArray[np.int64], promise: TokenPromise) -> Floats:
    """Returns how many requests keep TTFT, TPOT and memory, and how many have no TPOT, without those at the start."""
    first = round(SKIPPED_SHARE * len(ttft_ms))
    ttft, tpot, lost = ttft_ms[first:], tpot_ms[first:], preempted[first:]
    scale = len(ttft_ms) / len(ttft)
    kept = ttft <= promise.ttft_ms, tpot <= promise.tpot_ms, (lost == 0) & np.isfinite(ttft), np.isnan(tpot)
    return np.array([float(each.sum()) for each in kept]) * scale


def shares_of(counted: Floats) -> ServedShares:
    """Returns the shares of kept_counts that are already divided by all requests."""
    ttft, tpot, memory, unpaced = (float(value) for value in counted)
    return ServedShares(ttft, tpot / (1 - unpaced) if unpaced < 1 else 1.0, memory)


def servers_of(problem: Problem, service: Service) -> list[RatedServer]:
    """Returns every shape in which a server carries any load, with its best number of requests at once."""
    return [server_in(problem, service, shape) for shape in read_offers(problem).find_token_shapes(service)]


def kinds_of(problem: Problem, service: Service, tokens_per_iteration: int) -> list[RatedServer]:
    """Returns a server of each GPU type and degree that holds the longest request, without a rate."""
    found = []
    variant = problem.models[service.model][0]
    assert variant.llm
    for name, gpu in problem.gpu_types.items():
        profile = problem.profiles.get((service.model, variant.name, name))
        if profile is None:
            continue
        for degree, cost in profile.iteration.items():
            held = kv_tokens(profile, variant.llm, degree, gpu.memory_gib)
            if held >= variant.llm.context_tokens:
                limits = BatchingLimits(MOST_SEQUENCES, tokens_per_iteration, held)
                found.append(RatedServer(name, degree, cost, limits, 0.0))
    return found


def server_in(problem: Problem, service: Service, shape: TokenShape) -> RatedServer:
    """Returns the server of a shape."""
    profile = problem.profiles[service.model, shape.variant, shape.gpu_type]
    size = next(variant.llm for variant in problem.models[service.model] if variant.name == shape.variant)
    assert size
    cost, limits = iterations(
        profile, size, problem.gpu_types[shape.gpu_type], shape.degree, shape.batch, shape.memory_gib, shape.clock_mhz,
        problem.policy.exec_margin,
    )  # fmt: skip
    return RatedServer(shape.gpu_type, shape.degree, cost, limits, shape.rate_per_second)


def cost_of(groups: Sequence[ServerGroup]) -> float:
    """Returns what the groups' GPUs cost an hour."""
    return sum(group.count * group.server.cost_per_hour for group in groups)


def gpus_of(groups: Sequence[ServerGroup]) -> dict[str, int]:
    """Returns the groups' GPUs by type."""
    found: dict[str, int] = {}
    for group in groups:
        name = group.server.gpu_type
        found[name] = found.get(name, 0) + group.count * group.server.degree
    return dict(sorted(found.items()))


def cheapest_cover(servers: Sequence[RatedServer], rate_per_second: float) -> list[ServerGroup] | None:
    """Returns the servers that carry this rate together at the lowest cost; None where no server carries anything.

    It is an integer programme, solved by HiGHS; each server gets requests in proportion to the rate that it carries.
    """
    if not servers:
        return None
    rates = np.array([server.rate_per_second for server in servers])
    costs = np.array([server.cost_per_hour for server in servers])
    found = milp(
        costs, integrality=np.ones(len(servers)), bounds=Bounds(0, ceil(rate_per_second / rates.min()) + 1),
        constraints=LinearConstraint(rates[None, :], lb=rate_per_second), options={"mip_rel_gap": 1e-6},
    )  # fmt: skip
    assert found.x is not None, found.message
    counts = [round(count) for count in found.x]
    carried = sum(count * server.rate_per_second for count, server in zip(counts, servers, strict=True))
    return [
        ServerGroup(server, count, rate_per_second * count * server.rate_per_second / carried)
        for server, count in zip(servers, counts, strict=True)
        if count
    ]
