"""The cheapest pools against every count of servers."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from math import ceil, inf

import pytest

from solvers.pools.cover import PoolLimits, find_cheapest_pools
from solvers.pools.servers import RatedServer, count_gpus_of, sum_costs
from tests.solvers.pools.servers import make_server

KINDS = [make_server("a", 1.1, price=2.0), make_server("b", 2.3, price=4.5), make_server("c", 2.2, degree=4, price=7.0)]
OTHERS = [make_server("a", 3.1, price=2.0), make_server("b", 3.3, degree=2, price=4.5)]


def least_cost(pools: Sequence[Sequence[RatedServer]], rate: float, limits: PoolLimits) -> float:
    """Returns the least cost of all counts that keep the limits; infinite where none does."""

    def counts_of(servers: Sequence[RatedServer]) -> Iterator[tuple[int, ...]]:
        for counts in itertools.product(
            *(range(ceil(rate / each.rate_per_second) + limits.fewest + 1) for each in servers)
        ):
            served = sum(count * each.rate_per_second for count, each in zip(counts, servers, strict=True))
            if served >= rate and sum(counts) >= limits.fewest:
                yield counts

    everything = [server for servers in pools for server in servers]
    least = inf
    for chosen in itertools.product(*map(counts_of, pools)):
        counts = list(zip(everything, itertools.chain(*chosen), strict=True))
        used = {kind: sum(n * each.degree for each, n in counts if each.gpu_type == kind) for kind in "abc"}
        if all(used[kind] <= most for kind, most in (limits.most_gpus or {}).items()):
            least = min(least, sum(count * server.cost_per_hour for server, count in counts))
    return least


@pytest.mark.parametrize("rate", [0.3, 2.9, 7.2])
@pytest.mark.parametrize(
    "limits", [PoolLimits(), PoolLimits({"a": 16, "c": 4}), PoolLimits(None, 2), PoolLimits({"a": 8})]
)
@pytest.mark.parametrize("pools", [[KINDS], [KINDS, OTHERS]])
def test_pools_cost_what_the_cheapest_of_all_counts_do(
    pools: list[list[RatedServer]], rate: float, limits: PoolLimits
) -> None:
    found, least = find_cheapest_pools(pools, rate, limits), least_cost(pools, rate, limits)
    if found is None:
        assert least == inf
        return
    assert sum(map(sum_costs, found)) == pytest.approx(least)
    for pool in found:
        assert sum(group.count * group.server.rate_per_second for group in pool) >= rate - 1e-6
        assert sum(group.rate_per_second for group in pool) == pytest.approx(rate)
        assert sum(group.count for group in pool) >= limits.fewest
    used = count_gpus_of([group for pool in found for group in pool])
    assert all(used.get(name, 0) <= most for name, most in (limits.most_gpus or {}).items())


def test_a_pool_without_servers_and_too_few_gpus_have_no_answer() -> None:
    assert find_cheapest_pools([KINDS, []], 1.0) is None
    assert find_cheapest_pools([KINDS], 100.0, PoolLimits({"a": 8, "b": 8, "c": 4})) is None


def test_servers_stand_within_nodes() -> None:
    """One node of 8 GPUs and six of 1 carry one server of 4, and of 8, but not both."""
    wide, whole = make_server("a", 4.0, degree=4, price=1.0), make_server("a", 9.0, degree=8, price=1.0)
    nodes = {"a": {8: 1, 1: 6}}
    assert find_cheapest_pools([[wide]], 8.0, PoolLimits({"a": 14}, nodes=nodes))
    assert find_cheapest_pools([[wide]], 12.0, PoolLimits({"a": 14})) is not None
    assert find_cheapest_pools([[wide]], 12.0, PoolLimits({"a": 14}, nodes=nodes)) is None
    assert find_cheapest_pools([[wide], [whole]], 4.0, PoolLimits({"a": 14}, nodes=nodes)) is None
