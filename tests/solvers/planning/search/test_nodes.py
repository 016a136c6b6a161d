"""Boards of nodes that are billed whole: gathered on the fewest, searched for fewer, and left as they were found."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from itertools import islice, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.families import family
from solvers.planning.drafting.drafts import prepare
from solvers.planning.search import dive
from solvers.planning.search.gather import fewest, gather
from solvers.planning.search.local_search import LocalSearch
from solvers.planning.search.node_search import NodeSearch
from solvers.planning.search.prices import resource_prices
from solvers.planning.search.tables import tables
from solvers.planning.search.workshop import Workshop


def filled(seed: int) -> tuple[Workshop, dive.Dive]:
    problem = family("A", 24, 12, seed, load=0.5)
    nodes = {name: replace(node, pricing="node") for name, node in problem.nodes.items()}
    shop = prepare(tables(replace(problem, nodes=nodes)))
    course = dive.Dive(*resource_prices(shop.t, shop.pools, shop.counts, shop.tabled))
    shop.fill(course.rate, shop.t.rate.copy())
    shop.restack()
    return shop, course


def counted(shop: Workshop) -> float:
    """Returns the price of all nodes in use."""
    t = shop.t
    places = [place for pool in t.pools for place in pool.gpus]
    used = {places[gpu][0] for gpu in shop.used.tolist()}
    return sum(t.problem.nodes[name].gpu_count * t.problem.nodes[name].price_per_hour for name in used)


@given(st.lists(st.tuples(st.integers(1, 4), st.integers(0, 1), st.integers(0, 4)), min_size=1, max_size=6))
def test_the_fewest_nodes_hold_all_gpus_in_use(drawn: list[tuple[int, int, int]]) -> None:
    size = np.array([size for size, _, _ in drawn])
    room = np.maximum(size - np.array([less for _, less, _ in drawn]), 0)
    used = np.minimum(np.array([used for _, _, used in drawn]), room)
    kept = fewest(room, size, used)
    need = int(used.sum())
    assert room[kept].sum() >= need
    sums = (
        sum(size[place] for place, is_kept in enumerate(choice) if is_kept)
        for choice in product((False, True), repeat=len(size))
        if sum(room[place] for place, is_kept in enumerate(choice) if is_kept) >= need
    )
    assert size[kept].sum() == min(sums)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_gathering_changes_no_rate_and_pays_no_more(seed: int) -> None:
    shop, _ = filled(seed)
    # Every second GPU is emptied, so that most nodes are used in part.
    shop.clear(shop.used[::2].tolist())
    cover, bill, cost = shop.board.cover.copy(), shop.bill, shop.cost
    patterns = sorted(column.key for column in shop.columns(shop.used))
    gather(shop)
    assert shop.bill <= bill
    assert shop.cost == pytest.approx(cost)
    assert shop.board.cover == pytest.approx(cover)
    assert sorted(column.key for column in shop.columns(shop.used)) == patterns
    assert shop.board.cpu.min() >= 0
    assert shop.board.host.min() >= 0


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_search_for_nodes_serves_no_less_for_less_and_leaves_the_fleet_open(seed: int) -> None:
    shop, course = filled(seed)
    before, price, closed = shop.bill, shop.pools.price.copy(), shop.pools.closed.copy()
    assert not shop.need.any()
    assert before == pytest.approx(counted(shop))
    with closing(NodeSearch(shop, LocalSearch(shop, seed)).rounds(course.rate, course.extra)) as exchanges:
        found = sum(islice(exchanges, 400))
    assert found
    assert not shop.need.any()
    assert shop.bill < before
    assert shop.bill == pytest.approx(counted(shop))
    assert shop.pools.price == pytest.approx(price)
    assert (shop.pools.closed == closed).all()
