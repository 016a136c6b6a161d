"""Prefill and decode apart, as Splitwise and DistServe do: one pool computes prompts, another gives the answers.

Each pool is the cheapest set of servers that carries the rate, of any GPU types and degrees; over a link that joins few
GPUs, both stand beside each other in cells that are alike. Both pools are simulated: a prompt is computed, its keys and
values are sent, and the request waits at its second server for its first token. All of that counts in TTFT.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import ceil, inf

import numpy as np

from solvers.llm.iteration import TokenLengths, TokenPromise
from solvers.llm.served import serve_stream
from solvers.llm.streams import TokenStream
from solvers.pools.cover import ANY_NUMBER, PoolLimits, find_cheapest_pools
from solvers.pools.links import KeysSent, send_keys, split_by_server
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

ALL_CACHED = 1 - 1e-9  # of a prompt: all but one token
# Times the promised TPOT: how long a request may wait at its second server for its first token. Prompts have the rest.
HANDOVER_TOKENS = (1.5, 3.0, 6.0)
LINK_BUSY_SHARE = 0.8  # of the time, at most: what is sent at once waits
REQUESTS_PER_SERVER = 500  # are simulated, at least
UNIT_RATE = 1000.0  # arrivals are then in milliseconds


@dataclass(frozen=True, eq=False)
class ApartServers:
    """Two pools of servers, in one cell or in several that are alike: keys and values stay within a cell."""

    prefill: Sequence[ServerGroup]  # of a cell
    decode: Sequence[ServerGroup]
    sent: KeysSent
    cells: int = 1

    @property
    def cost_per_hour(self) -> float:
        return self.cells * (sum_costs(self.prefill) + sum_costs(self.decode)) + self.sent.price_per_hour

    @property
    def gpu_counts(self) -> dict[str, int]:
        counts = count_gpus_of([*self.prefill, *self.decode])
        return {gpu_type: self.cells * gpus for gpu_type, gpus in counts.items()}

    @property
    def sent_ms_per_token(self) -> float:
        """Returns how long keys and values of a token take between the servers with the slowest links."""
        return max(self.sent.milliseconds_per_token(group.server) for group in (*self.prefill, *self.decode))

    def fills_link(self, server: RatedServer, input_mean: float) -> bool:
        """Returns whether the links of a server, and not its GPUs, limit the rate that it carries."""
        return server.rate_per_second >= LINK_BUSY_SHARE * self.sent.most_per_second(server, input_mean) * (1 - 1e-9)

    def simulate(self, trial: RequestTrial) -> ServedShares:
        """Returns what requests get: every server of both pools of a cell is simulated."""
        servers = sum(group.count for group in (*self.prefill, *self.decode))
        stream = trial.source.draw_requests(max(trial.requests, REQUESTS_PER_SERVER * servers), trial.seed)
        arrivals = stream.arrivals * (1000 * self.cells / trial.rate_per_second)
        first, tpot = np.full(len(arrivals), inf), np.full(len(arrivals), inf)
        at_first = _choose_servers(self.prefill, arrivals, trial.seed)
        prompts = TokenStream(arrivals, stream.inputs, np.ones_like(stream.inputs), stream.cached)
        ready, _, lost = _serve(self.prefill, prompts, at_first)
        served = np.flatnonzero(np.isfinite(ready))
        at_second = _choose_servers(self.decode, ready[served], trial.seed)
        inputs = stream.inputs[served]
        ends = [
            (chosen, inputs * np.array(list(map(self.sent.milliseconds_per_token, _list_servers(pool))))[chosen])
            for pool, chosen in ((self.prefill, at_first[served]), (self.decode, at_second))
        ]
        there = send_keys(ready[served], ends[0], ends[1])
        answers = TokenStream(there, inputs, stream.outputs[served], inputs - 1)  # the last token is computed again
        first[served], tpot[served], lost_there = _serve(self.decode, answers, at_second)
        lost[served] += lost_there
        return read_shares(count_kept(first - arrivals, tpot, lost, trial.promise))


@dataclass(frozen=True, slots=True)
class RatedPools:
    """The servers to choose from for prompts and for answers, with the rates that they carry for parts of a TTFT."""

    prefill: Sequence[RatedServer]
    decode: Sequence[RatedServer]

    def find_pools(self, rate_per_second: float, sent: KeysSent, limits: PoolLimits) -> Iterator[ApartServers]:
        """Yields both pools as cheap as any for this rate, if there are any: of a network, or in cells."""
        if sent.link.most_gpus is not None:
            yield from self._list_cells(sent, rate_per_second, limits)
        elif pools := find_cheapest_pools((self.prefill, self.decode), rate_per_second, limits):
            yield ApartServers(pools[0], pools[1], sent)

    def _list_cells(self, sent: KeysSent, rate: float, limits: PoolLimits) -> Iterator[ApartServers]:
        """Yields cells that carry the rate, of servers of one GPU type; none that fits is cheaper than all of these."""
        for first, second in product(self.prefill, self.decode):
            if first.gpu_type != second.gpu_type:
                continue
            most = inf if limits.most_gpus is None else limits.most_gpus.get(first.gpu_type, 0)
            for cells, prompts, answers in _list_cell_counts(first, second, rate, limits.fewest):
                gpus = prompts * first.degree + answers * second.degree
                if cells * (first.degree + second.degree) > most:
                    break
                if cells * gpus <= most and sent.link.has_room(cells, gpus):
                    prefill, decode = (
                        ServerGroup(first, prompts, rate / cells),
                        ServerGroup(second, answers, rate / cells),
                    )
                    yield ApartServers([prefill], [decode], sent, cells)


@dataclass(frozen=True, slots=True)
class ApartPlanner:
    """The servers to choose from, for each way to divide the promised TTFT between both pools."""

    divided: Sequence[RatedPools]
    sent: KeysSent

    def find_servers(self, rate_per_second: float, limits: PoolLimits = ANY_NUMBER) -> ApartServers | None:
        """Returns the cheapest pools for this rate; None where no server carries prompts, or none carries answers."""
        pools = (found for rated in self.divided for found in rated.find_pools(rate_per_second, self.sent, limits))
        return min(pools, key=lambda servers: servers.cost_per_hour, default=None)


def _list_cell_counts(
    first: RatedServer, second: RatedServer, rate: float, fewest: int
) -> Iterator[tuple[int, int, int]]:
    """Yields numbers of cells, more each time, with the fewest servers of both kinds that a cell then needs.

    Numbers between two of them need the same servers in a cell, and so cost more. Of n servers needed in one cell,
    2 sqrt(n) numbers of cells are yielded for each kind at most.
    """
    cells: float = 1
    while cells < inf:
        counts = [
            max(ceil(rate / (cells * server.rate_per_second)), ceil(fewest / cells)) for server in (first, second)
        ]
        yield int(cells), counts[0], counts[1]
        cells = min(
            inf
            if count == 1
            else max(cells + 1, ceil(rate / ((count - 1) * server.rate_per_second)), ceil(fewest / (count - 1)))
            for server, count in zip((first, second), counts, strict=True)
        )


def plan_apart(
    servers: Sequence[RatedServer], lengths: TokenLengths, promise: TokenPromise, sent: KeysSent
) -> ApartPlanner:
    """Returns the planner: each server computes prompts alone, or answers alone, with its best requests at once."""
    linked = [server for server in servers if server.gpu_type in sent.link.gbit_per_second]
    return ApartPlanner(
        [_rate_pools(linked, lengths, promise, sent, tokens * promise.tpot_ms) for tokens in HANDOVER_TOKENS], sent
    )


def _rate_pools(
    servers: Sequence[RatedServer], lengths: TokenLengths, promise: TokenPromise, sent: KeysSent, handover_ms: float
) -> RatedPools:
    """Returns the servers for both pools; what sends a long prompt's keys and the hand-over leave of TTFT is prefill's.

    No server gets more than its links send.
    """
    prompts = replace(lengths, output_mean=1.0, output_p95=1.0)
    answers = replace(lengths, prefix_share=ALL_CACHED)
    prefill: list[RatedServer] = []
    decode: list[RatedServer] = []
    for kind in servers:
        left_ms = promise.ttft_ms - handover_ms - lengths.input_p95 * sent.milliseconds_per_token(kind)
        if left_ms <= 0:
            continue
        most = LINK_BUSY_SHARE * sent.most_per_second(kind, lengths.input_mean)
        quick, waiting = replace(promise, ttft_ms=left_ms, tpot_ms=inf), replace(promise, ttft_ms=handover_ms)
        for pool, work, kept in ((prefill, prompts, quick), (decode, answers, waiting)):
            found = rate_best(kind, work, kept) if pool is decode or sent.link.can_send(kind) else ()
            pool += [replace(server, rate_per_second=min(server.rate_per_second, most)) for server in found]
    return RatedPools(prefill, decode)


def _list_servers(pool: Sequence[ServerGroup]) -> list[RatedServer]:
    return [group.server for group in pool for _ in range(group.count)]


def _choose_servers(pool: Sequence[ServerGroup], arrivals: Floats, seed: int) -> Integers:
    """Returns the server of each request: requests go to servers at random, by the rates of the plan."""
    rates = np.concatenate([np.full(group.count, group.rate_per_second / group.count) for group in pool])
    order = np.argsort(arrivals, kind="stable")
    generator = np.random.default_rng([len(order), seed, len(rates)])
    server_of = np.empty(len(order), dtype=np.int64)
    server_of[order] = generator.choice(len(rates), len(order), p=rates / rates.sum())
    return server_of


def _serve(pool: Sequence[ServerGroup], stream: TokenStream, server_of: Integers) -> tuple[Floats, Floats, Integers]:
    """Returns when each request gets its first token of a pool, its pace, and how often it was preempted."""
    first, tpot = np.full(len(server_of), inf), np.full(len(server_of), np.nan)
    lost = np.zeros(len(server_of), dtype=np.int64)
    servers = _list_servers(pool)
    for own in split_by_server(stream.arrivals, server_of):
        server, part = servers[server_of[own[0]]], stream.of(own)
        run = serve_stream(server.cost, server.limits, part, UNIT_RATE)
        assert run is not None  # nothing stops it early
        first[own], tpot[own], lost[own] = part.arrivals + run.ttft_ms, run.tpot_ms, run.preempted
    return first, tpot, lost
