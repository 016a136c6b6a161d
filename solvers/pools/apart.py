"""Prefill and decode apart, as Splitwise and DistServe do: one pool computes prompts, another gives the answers.

Each pool is the cheapest set of servers that carries the rate, of any GPU types and degrees. Both are simulated, one
after the other: a request leaves its first server with its first token, its keys and values are sent, and it waits at
its second server for its second token. The time of sending and of waiting there counts as pace.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf

import numpy as np

from solvers.llm.iteration import TokenLengths, TokenPromise
from solvers.llm.served import serve_stream
from solvers.llm.streams import TokenStream
from solvers.pools.cover import ANY_NUMBER, PoolLimits, find_cheapest_pools
from solvers.pools.rated import rate_best
from solvers.pools.servers import (
    Floats,
    Integers,
    RatedServer,
    RequestTrial,
    ServedShares,
    ServerGroup,
    count_gpus_of,
    count_kept,
    read_shares,
    sum_costs,
)

BYTES_PER_GBIT_MS = 1e9 / 8 / 1000  # that a link of one gigabit a second sends in a millisecond
ALL_CACHED = 1 - 1e-9  # of a prompt: all but one token
FIRST_WAIT_TOKENS = 4  # times the promised TPOT: how long a request may wait at its second server
REQUESTS_PER_SERVER = 500  # are simulated, at least
UNIT_RATE = 1000.0  # arrivals are then in milliseconds


@dataclass(frozen=True, slots=True)
class KeysSent:
    """What goes from the first server to the second: the keys and values of each token of a prompt."""

    bytes_per_token: float
    gbit_per_second: float  # of each GPU's link

    def milliseconds_per_token(self, gpus: int) -> float:
        """Returns how long those of a token take between servers of so many GPUs each."""
        return self.bytes_per_token / (self.gbit_per_second * BYTES_PER_GBIT_MS * gpus)


@dataclass(frozen=True, eq=False)
class ApartServers:
    """Two pools of servers."""

    prefill: Sequence[ServerGroup]
    decode: Sequence[ServerGroup]
    sent: KeysSent

    @property
    def cost_per_hour(self) -> float:
        return sum_costs(self.prefill) + sum_costs(self.decode)

    @property
    def gpu_counts(self) -> dict[str, int]:
        return count_gpus_of([*self.prefill, *self.decode])

    @property
    def sent_ms_per_token(self) -> float:
        """Returns how long keys and values of a token take to the second server, over the fewest GPUs of any server."""
        return self.sent.milliseconds_per_token(min(group.server.degree for group in (*self.prefill, *self.decode)))

    def simulate(self, trial: RequestTrial) -> ServedShares:
        """Returns what requests get: every server of both pools is simulated."""
        servers = sum(group.count for group in (*self.prefill, *self.decode))
        stream = trial.source.draw_requests(max(trial.requests, REQUESTS_PER_SERVER * servers), trial.seed)
        arrivals = stream.arrivals * 1000 / trial.rate_per_second
        prompts = TokenStream(arrivals, stream.inputs, np.ones_like(stream.inputs), stream.cached)
        first, _, lost = _pass_through(self.prefill, prompts, trial.seed)
        sent = first + stream.inputs * self.sent_ms_per_token
        continues = (stream.outputs > 1) & np.isfinite(first)
        last = first.copy()
        inputs = stream.inputs[continues]
        answers = TokenStream(sent[continues], inputs + 1, stream.outputs[continues] - 1, inputs)
        _, last[continues], lost_there = _pass_through(self.decode, answers, trial.seed)
        lost[continues] += lost_there
        tokens = stream.outputs - 1
        tpot = np.where(tokens > 0, (last - first) / np.maximum(tokens, 1), np.nan)
        tpot[(tokens > 0) & ~np.isfinite(last)] = inf
        return read_shares(count_kept(first - arrivals, tpot, lost, trial.promise))


@dataclass(frozen=True, slots=True)
class ApartPlanner:
    """The servers to choose from for prompts and for answers, with the rates that they carry."""

    prefill: Sequence[RatedServer]
    decode: Sequence[RatedServer]
    sent: KeysSent

    def find_servers(self, rate_per_second: float, limits: PoolLimits = ANY_NUMBER) -> ApartServers | None:
        """Returns both pools for this rate; None where no server carries prompts, or none carries answers."""
        pools = find_cheapest_pools((self.prefill, self.decode), rate_per_second, limits)
        return None if pools is None else ApartServers(pools[0], pools[1], self.sent)


def plan_apart(
    servers: Sequence[RatedServer], lengths: TokenLengths, promise: TokenPromise, sent: KeysSent
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
        [server for kind in servers for server in rate_best(kind, prompts, quick)],
        [server for kind in servers for server in rate_best(kind, rest, waiting)],
        sent,
    )


def _pass_through(pool: Sequence[ServerGroup], stream: TokenStream, seed: int) -> tuple[Floats, Floats, Integers]:
    """Returns when each request gets its first and its last token of a pool, and how often it was preempted.

    Requests go to servers at random, by the rates that these were planned for.
    """
    rates = np.concatenate([np.full(group.count, group.rate_per_second / group.count) for group in pool])
    servers = [group.server for group in pool for _ in range(group.count)]
    order = np.argsort(stream.arrivals, kind="stable")
    generator = np.random.default_rng([len(order), seed, len(servers)])
    server_of = np.empty(len(order), dtype=np.int64)
    server_of[order] = generator.choice(len(servers), len(order), p=rates / rates.sum())
    first, last = np.full(len(order), inf), np.full(len(order), inf)
    lost = np.zeros(len(order), dtype=np.int64)
    for number, server in enumerate(servers):
        own = order[server_of[order] == number]
        if not len(own):
            continue
        part = stream.of(own)
        run = serve_stream(server.cost, server.limits, part, UNIT_RATE)
        assert run is not None  # nothing stops it early
        first[own] = part.arrivals + run.ttft_ms
        last[own] = first[own] + np.where(part.outputs > 1, run.tpot_ms, 0.0) * (part.outputs - 1)
        lost[own] = run.preempted
    return first, last, lost
