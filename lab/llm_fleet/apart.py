"""Prefill and decode apart, as Splitwise and DistServe do: one pool computes prompts, another gives the answers.

Each pool is the cheapest set of servers that carries the rate, of any GPU types and degrees. Both are simulated, one
after the other: a request leaves its first server with its first token, its keys and values are sent, and it waits at
its second server for its second token. The time of sending and of waiting there counts as pace.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import inf

import numpy as np
from numpy.typing import NDArray

from lab.llm_fleet.catalogue import PROMPT_PARTS
from lab.llm_fleet.servers import (
    SEED,
    RatedServer,
    ServedShares,
    ServerGroup,
    cheapest_cover,
    cost_of,
    gpus_of,
    kept_counts,
    shares_of,
)
from lab.llm_fleet.trace import TracedRequests
from solvers.llm.served import serve_stream
from solvers.llm.streams import TokenStream
from solvers.planning.fleet.token_shapes import BATCHES, carries
from solvers.planning.language import TokenLengths, TokenPromise

SENT_BYTES_PER_MS = 25e6  # of each GPU: 200 Gbit/s, as a DGX A100 has for each of its GPUs
ALL_CACHED = 1 - 1e-9  # of a prompt: all but one token
FIRST_WAIT_TOKENS = 4  # times the promised TPOT: how long a request may wait at its second server
REQUESTS_PER_SERVER = 500  # are simulated, at least
UNIT_RATE = 1000.0  # arrivals are then in milliseconds

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class ApartServers:
    """Two pools of servers."""

    prefill: Sequence[ServerGroup]
    decode: Sequence[ServerGroup]
    kv_bytes_per_token: float

    @property
    def cost_per_hour(self) -> float:
        return cost_of(self.prefill) + cost_of(self.decode)

    @property
    def gpu_counts(self) -> dict[str, int]:
        return gpus_of([*self.prefill, *self.decode])

    def shares(
        self, trace: TracedRequests, promise: TokenPromise, rate_per_second: float, requests: int
    ) -> ServedShares:
        """Returns what requests get: every server of both pools is simulated."""
        servers = sum(group.count for group in (*self.prefill, *self.decode))
        stream = trace.drawn(max(requests, REQUESTS_PER_SERVER * servers), SEED)
        arrivals = stream.arrivals * 1000 / rate_per_second
        ones, none = np.ones_like(stream.inputs), np.zeros_like(stream.inputs)
        first, _, lost = _through(self.prefill, TokenStream(arrivals, stream.inputs, ones, none))
        degree = min(group.server.degree for group in (*self.prefill, *self.decode))
        sent = first + stream.inputs * self.kv_bytes_per_token / (SENT_BYTES_PER_MS * degree)
        goes_on = (stream.outputs > 1) & np.isfinite(first)
        last = first.copy()
        inputs = stream.inputs[goes_on]
        part = TokenStream(sent[goes_on], inputs + 1, stream.outputs[goes_on] - 1, inputs)
        _, last[goes_on], lost_there = _through(self.decode, part)
        lost[goes_on] += lost_there
        tokens = stream.outputs - 1
        tpot = np.where(tokens > 0, (last - first) / np.maximum(tokens, 1), np.nan)
        tpot[(tokens > 0) & ~np.isfinite(last)] = inf
        return shares_of(kept_counts(first - arrivals, tpot, lost, promise) / len(arrivals))


@dataclass(frozen=True, slots=True)
class ApartPlanner:
    """The servers to choose from for prompts and for answers, with the rates that they carry."""

    prefill: Sequence[RatedServer]
    decode: Sequence[RatedServer]
    kv_bytes_per_token: float

    def servers(self, rate_per_second: float) -> ApartServers | None:
        """Returns both pools for this rate; None where no server carries prompts, or none carries answers."""
        prefill, decode = (cheapest_cover(pool, rate_per_second) for pool in (self.prefill, self.decode))
        return ApartServers(prefill, decode, self.kv_bytes_per_token) if prefill and decode else None


def apart(
    servers: Sequence[RatedServer], lengths: TokenLengths, promise: TokenPromise, kv_bytes_per_token: float
) -> ApartPlanner:
    """Returns the planner: each server computes prompts alone, or answers alone, with its best requests at once."""
    prompts = replace(lengths, output_mean=1.0, output_p95=1.0)
    rest = replace(
        lengths, output_mean=max(1.0, lengths.output_mean - 1), output_p95=max(1.0, lengths.output_p95 - 1),
        prefix_share=ALL_CACHED,
    )  # fmt: skip
    quick = replace(promise, tpot_ms=inf)
    waiting = replace(promise, ttft_ms=FIRST_WAIT_TOKENS * promise.tpot_ms)
    return ApartPlanner(
        [server for kind in servers for server in _best(kind, prompts, quick)],
        [server for kind in servers for server in _best(kind, rest, waiting)],
        kv_bytes_per_token,
    )


def _best(server: RatedServer, lengths: TokenLengths, promise: TokenPromise) -> Iterator[RatedServer]:
    """Returns the server with the number of requests at once that carries most; nothing if none carries anything."""
    best = replace(server, rate_per_second=0.0)
    for batch in reversed(BATCHES):
        limits = replace(server.limits, sequences=batch, tokens_per_iteration=max(PROMPT_PARTS))
        rate = carries(server.cost, limits, lengths, promise).rate_per_second
        if rate < best.rate_per_second:
            break
        if rate > best.rate_per_second:
            best = replace(best, limits=limits, rate_per_second=rate)
    if best.rate_per_second > 0:
        yield best


def _through(pool: Sequence[ServerGroup], stream: TokenStream) -> tuple[Floats, Floats, Integers]:
    """Returns when each request gets its first and its last token of a pool, and how often it was preempted.

    Requests go to servers at random, by the rates that these were planned for.
    """
    rates = np.concatenate([np.full(group.count, group.rate_per_second / group.count) for group in pool])
    servers = [group.server for group in pool for _ in range(group.count)]
    order = np.argsort(stream.arrivals, kind="stable")
    drawn = np.random.default_rng([len(order), SEED, len(servers)])
    to = np.empty(len(order), dtype=np.int64)
    to[order] = drawn.choice(len(servers), len(order), p=rates / rates.sum())
    first, last = np.full(len(order), inf), np.full(len(order), inf)
    lost = np.zeros(len(order), dtype=np.int64)
    for number, server in enumerate(servers):
        mine = order[to[order] == number]
        if not len(mine):
            continue
        part = TokenStream(stream.arrivals[mine], stream.inputs[mine], stream.outputs[mine], stream.cached[mine])
        run = serve_stream(server.cost, server.limits, part, UNIT_RATE)
        assert run is not None  # nothing stops it early
        first[mine] = part.arrivals + run.ttft_ms
        last[mine] = first[mine] + np.where(part.outputs > 1, run.tpot_ms, 0.0) * (part.outputs - 1)
        lost[mine] = run.preempted
    return first, last, lost
