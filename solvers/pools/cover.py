"""Chooses the cheapest servers that carry a rate: an integer programme, solved by HiGHS."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil

from solvers.integer_program import IntegerProgram
from solvers.pools.servers import RatedServer, ServerGroup

MOST_NODES = 5_000  # of branch and bound: the same answer on every machine
GAP_SHARE = 1e-6


@dataclass(frozen=True, slots=True)
class PoolLimits:
    """What all pools of a service keep together."""

    most_gpus: Mapping[str, int] | None = None  # by type; None: any number of each
    fewest: int = 1  # servers of each pool
    nodes: Mapping[str, Mapping[int, int]] | None = None  # by type, how many there are of so many GPUs; None: any


ANY_NUMBER = PoolLimits()


def find_cheapest_pools(
    pools: Sequence[Sequence[RatedServer]], rate_per_second: float, limits: PoolLimits = ANY_NUMBER
) -> list[list[ServerGroup]] | None:
    """Returns a pool of each kind of servers, each of which carries the whole rate; None where the limits allow none.

    Each server of a pool gets requests in proportion to the rate that it carries.
    """
    rows = IntegerProgram()
    counts: list[list[int]] = []
    for servers in pools:
        most = [ceil(rate_per_second / server.rate_per_second) + limits.fewest for server in servers]
        costs = [server.cost_per_hour for server in servers]
        counts.append([rows.variable(cost, count, is_whole=True) for cost, count in zip(costs, most, strict=True)])
    for servers, own in zip(pools, counts, strict=True):
        if not servers:
            return None
        rates = [server.rate_per_second for server in servers]
        rows.row(zip(own, rates, strict=True), least=rate_per_second)
        rows.row(((at, 1.0) for at in own), least=limits.fewest)
    everything = [pair for servers, own in zip(pools, counts, strict=True) for pair in zip(own, servers, strict=True)]
    for gpu_type, gpus in (limits.most_gpus or {}).items():
        rows.row(((at, float(server.degree)) for at, server in everything if server.gpu_type == gpu_type), most=gpus)
    for (gpu_type, gpus), most_servers in _count_places(limits, [server for _, server in everything]).items():
        placed = [(at, float(server.degree // gpus)) for at, server in everything if server.gpu_type == gpu_type]
        rows.row(placed, most=most_servers)
    solved = rows.solve(MOST_NODES, GAP_SHARE)
    if solved is None:
        return None
    return [
        _share_rate(servers, [round(solved.values[at]) for at in own], rate_per_second)
        for servers, own in zip(pools, counts, strict=True)
    ]


def count_places(groups: Mapping[int, int], gpus: int) -> int:
    """Returns how many times so many GPUs are found within one of these groups of GPUs."""
    return sum(count * (size // gpus) for size, count in groups.items())


def _count_places(limits: PoolLimits, servers: Sequence[RatedServer]) -> dict[tuple[str, int], int]:
    """Returns how many servers of each type and degree the nodes have room for: a server stands within one node."""
    if limits.nodes is None:
        return {}
    return {
        (server.gpu_type, server.degree): count_places(limits.nodes.get(server.gpu_type, {}), server.degree)
        for server in servers
    }


def _share_rate(servers: Sequence[RatedServer], counts: Sequence[int], rate_per_second: float) -> list[ServerGroup]:
    carried = sum(count * server.rate_per_second for count, server in zip(counts, servers, strict=True))
    return [
        ServerGroup(server, count, rate_per_second * count * server.rate_per_second / carried)
        for server, count in zip(servers, counts, strict=True)
        if count
    ]
