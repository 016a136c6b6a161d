"""Instances of one service carry unequal parts of its rate, as unequal as its minInstances allow and no more."""

from __future__ import annotations

from dataclasses import replace
from itertools import takewhile

import numpy as np
import pytest

from benchmarks.families import family
from solvers.planning.drafting.drafts import drafts, prepare
from solvers.planning.judge import judge
from solvers.planning.problem import Node, Policy, Problem
from solvers.planning.search.realise import serves_all
from solvers.planning.search.shares import MOST_CUTS, InstanceShares
from solvers.planning.search.tables import tables
from solvers.planning.search.workshop import Workshop
from solvers.planning.solve import SolveBudget, solve
from tests.solvers.planning import small_world
from tests.support.soak import scaled


def a_large_gpu_and_two_small_ones() -> Problem:
    """One service wants two instances. The large GPU carries 266 of its 380 requests a second, a small one 133."""
    large = replace(small_world.profile("m", "v", "big"), demand=replace(small_world.DEMAND, sensitivity=0.0))
    slow = {b: tuple((sm, 2 * ms) for sm, ms in points) for b, points in small_world.LATENCY.items()}
    profiles = (large, replace(large, gpu_type="old", latency_ms=slow))
    return Problem(
        gpu_types={"big": small_world.BIG, "old": small_world.OLD},
        nodes={
            "large": Node("large", "big", (0,), cpu_cores=16, host_memory_gib=64, price_per_hour=2),
            "small": Node("small", "old", (0, 1), cpu_cores=16, host_memory_gib=64, price_per_hour=1),
        },
        models={"m": small_world.problem().models["d"]},
        profiles={profile.key: profile for profile in profiles},
        services={"shop/search": small_world.service("shop/search", "m", min_instances=2, rate_per_second=380)},
        policy=Policy(energy_price_per_kwh=0),
    )


@pytest.mark.slow
def test_of_two_instances_one_carries_far_more_than_half() -> None:
    problem = a_large_gpu_and_two_small_ones()
    plan = solve(problem, SolveBudget(seconds=None, work=60))
    assert plan.certificate and plan.certificate.cost.total == 3  # even shares would need all three GPUs
    assert {instance.node: round(instance.rate_per_second) for instance in plan.instances}["large"] > 380 * 0.6
    assert judge(problem, plan).is_right


def seated(caps: list[float]) -> Workshop:
    """Returns a board on which the service has an instance with each of these caps."""
    shop = prepare(tables(a_large_gpu_and_two_small_ones()))
    shop.fill(np.ones(1), shop.t.rate.copy())
    assert len(shop.used) == len(caps)
    shop.board.cap[shop.used, 0] = caps
    shop.board.cover[0] = sum(caps)
    return shop


@pytest.mark.parametrize(
    ("caps", "kept"),
    [
        ([230.0, 75.0, 75.0], [230.0, 75.0, 75.0]),  # half of an even share is 63
        ([270.0, 55.0, 55.0], [190.0, 55.0, 55.0]),
    ],
)
def test_instances_too_unequal_are_cut_to_even_shares(caps: list[float], kept: list[float]) -> None:
    shop = seated(caps)
    InstanceShares(shop).cut()
    assert shop.board.cap[shop.used, 0] == pytest.approx(kept)
    assert shop.need == pytest.approx([380 - sum(kept)])


def test_a_service_that_is_cut_often_gets_even_shares_until_shares_widen_again() -> None:
    shop = seated([270.0, 55.0, 55.0])
    shares = InstanceShares(shop)
    shares.widen()
    shop.look_at(10)
    for _ in range(MOST_CUTS):
        assert shop.tabled.top[0] > 190
        shop.board.cap[shop.used, 0], shop.board.cover[0] = [270.0, 55.0, 55.0], 380.0
        shares.cut()
    assert shop.tabled.top[0] == shop.tabled.rates.max() == shop.w.most_rate[0] == 190
    shares.widen()
    shop.look_at(10)
    assert shop.tabled.top[0] > 190


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(scaled(20, 2)))
def test_drafts_serve_what_their_boards_say(seed: int) -> None:
    shop = prepare(tables(family("C", 16, 12, seed, load=0.6)))
    made = [draft for draft in takewhile(lambda draft: draft.work <= 60, drafts(shop, seed)) if draft.method]
    assert any(draft.ends_the_beginning for draft in made)
    assert all(serves_all(shop.t, draft.placed) for draft in made if draft.ends_the_beginning)
