"""Cells of two pools: none is cheaper than those that are tried, and few are tried however many GPUs there are."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from solvers.pools.apart import RatedPools
from solvers.pools.cover import PoolLimits
from solvers.pools.links import NVLINK, KeysSent, ServerLink
from solvers.pools.servers import RatedServer
from tests.solvers.pools.servers import KV_BYTES, make_server


def join_gpus(most_gpus: int) -> KeysSent:
    return KeysSent(ServerLink(NVLINK, {"a": 2400.0}, most_gpus=most_gpus), KV_BYTES)


def find_cheapest_cost(
    first: RatedServer, second: RatedServer, rate: float, joined: int, limits: PoolLimits
) -> float | None:
    """Returns the least cost of all cells of all sizes and numbers, one by one."""
    assert limits.most_gpus
    costs = [
        cells * (prompts * first.cost_per_hour + answers * second.cost_per_hour)
        for cells, prompts, answers in product(range(1, 41), repeat=3)
        if prompts * first.degree + answers * second.degree <= joined
        and cells * (prompts * first.degree + answers * second.degree) <= limits.most_gpus["a"]
        and cells * prompts * first.rate_per_second >= rate <= cells * answers * second.rate_per_second
        and cells * min(prompts, answers) >= limits.fewest
    ]
    return min(costs, default=None)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_no_cell_is_cheaper_than_those_that_are_tried(seed: int) -> None:
    draw = np.random.default_rng(seed)
    first, second = (
        make_server("a", float(draw.uniform(0.5, 4)), degree=int(draw.choice([1, 2, 4])), price=float(price))
        for price in draw.uniform(1, 3, 2)
    )
    limits = PoolLimits({"a": int(draw.integers(2, 40))}, int(draw.integers(1, 4)))
    rate, joined = float(draw.uniform(0.5, 20)), int(draw.integers(2, 17))
    tried = [each.cost_per_hour for each in RatedPools([first], [second]).find_pools(rate, join_gpus(joined), limits)]
    least = find_cheapest_cost(first, second, rate, joined, limits)
    assert min(tried, default=None) == (least if least is None else pytest.approx(least))


def test_few_cells_of_very_many_gpus_are_tried() -> None:
    first, second = make_server("a", 3.0, degree=1), make_server("a", 0.7, degree=1)
    pools = RatedPools([first], [second])
    few, many = (
        len(list(pools.find_pools(0.2 * gpus, join_gpus(gpus), PoolLimits({"a": gpus})))) for gpus in (300, 30_000)
    )
    assert 0 < few < 60
    assert few < many < 600


def test_cells_stand_in_the_groups_that_there_are() -> None:
    """Two groups of 4 GPUs have room for two cells of 3, or four of 2; one has no room for as many."""
    pools, limits = (
        RatedPools([make_server("a", 2.0, degree=1)], [make_server("a", 1.0, degree=1)]),
        PoolLimits({"a": 99}),
    )
    for groups, cells in (({4: 2, 1: 20}, {2, 4}), ({4: 1, 1: 20}, set()), (None, {1, 2, 4})):
        sent = KeysSent(ServerLink(NVLINK, {"a": 2400.0}, most_gpus=8, groups=groups), KV_BYTES)
        assert {each.cells for each in pools.find_pools(4.0, sent, limits)} == cells
