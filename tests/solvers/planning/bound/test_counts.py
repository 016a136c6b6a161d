"""Choices of how many GPUs of each pool are used: no plan that uses them costs less than any prices prove for them."""

from __future__ import annotations

import os
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.families import family
from solvers.planning.bound.counts import MOST_CHOICES, GpuCounts
from solvers.planning.bound.fleet import fleet
from solvers.planning.bound.search import BoundSearch
from solvers.planning.fleet.grids import Floats
from solvers.planning.problem import Problem
from solvers.planning.search.tables import tables
from solvers.planning.solve import SolveBudget, solve
from tests.solvers.planning.bound.test_bound import cheapest, last, problems
from tests.solvers.planning.small_fleets import fleets, least_cost

EXAMPLES = 300 if os.environ.get("GPUWRIGHT_SOAK") else 10


def with_gpus(problem: Problem, choice: Floats) -> Problem:
    """Returns the problem with so many GPUs of each pool."""
    kept = {
        gpu: True
        for pool, count in zip(tables(problem).pools, choice, strict=True)
        for gpu in sorted(pool.gpus)[: int(count)]
    }
    nodes = {
        name: replace(node, gpus=tuple(index for index in node.gpus if (name, index) in kept))
        for name, node in problem.nodes.items()
    }
    return replace(problem, nodes={name: node for name, node in nodes.items() if node.gpus})


@pytest.mark.slow
@settings(max_examples=EXAMPLES, deadline=None)
@given(problems(), st.integers(0, 2**32 - 1))
def test_no_plan_on_some_of_the_gpus_costs_less_than_is_proved_for_them(problem: Problem, seed: int) -> None:
    problem = replace(problem, policy=replace(problem.policy, pricing="gpu"))
    rng, found = np.random.default_rng(seed), last(problem)
    search = BoundSearch(fleet(tables(problem)), 0)
    for _ in range(4):
        search.look(found.prices[: len(problem.services)] * rng.uniform(0.5, 1.1, len(problem.services)))
    counts = search.counts
    for choice in rng.permutation(counts.choices)[:4]:
        fewer = (counts.choices <= choice).all(axis=1)
        assert counts.proved[fewer].min() <= cheapest(with_gpus(problem, choice)) * (1 + 1e-9)


def test_the_cheapest_choice_that_may_serve_everything_is_the_bound() -> None:
    search = BoundSearch(fleet(tables(family("A", 8, 4, 2))), 0)
    counts = search.counts
    counts.proved[:] = counts.cost + np.where(np.arange(len(counts.cost)) == 100, 0.0, 1.0)
    bound, choice = counts.least()
    assert bound == pytest.approx(counts.cost[100])
    assert choice is not None and (choice == counts.choices[100]).all()
    counts.proved[:] = counts.cost + 1.0
    bound, choice = counts.least()
    assert choice is None
    assert bound == pytest.approx(search.sums.costs.otherwise + search.sums.sure)


@pytest.mark.slow
def test_shares_and_large_fleets_have_no_choices_listed() -> None:
    assert GpuCounts.applies(fleet(tables(family("A", 16, 4, 0))))
    assert not GpuCounts.applies(fleet(tables(family("D", 16, 4, 0))))
    large = fleet(tables(family("A", 100, 4, 0)))
    assert not GpuCounts.applies(large)
    assert np.prod(large.count + 1) > MOST_CHOICES


@pytest.mark.slow
@settings(max_examples=EXAMPLES, deadline=None)
@given(fleets(pricing="node"))
def test_no_plan_on_nodes_billed_whole_costs_less_than_the_bound(problem: Problem) -> None:
    assert last(problem).bound <= least_cost(problem) * (1 + 1e-9)


def by_node(problem: Problem) -> Problem:
    return replace(problem, nodes={name: replace(node, pricing="node") for name, node in problem.nodes.items()})


@pytest.mark.slow
def test_choices_of_nodes_billed_whole_are_sums_of_their_sizes_and_prove_more() -> None:
    problem = by_node(family("A", 16, 8, 1))
    f = fleet(tables(problem))
    counts = BoundSearch(f, 0).counts
    for place, pool in enumerate(f.tables.pools):
        nodes = {name for name, _ in pool.gpus}
        sizes = [problem.nodes[name].gpu_count for name in nodes]
        sums = {sum(some) for count in range(len(sizes) + 1) for some in combinations(sizes, count)}
        assert set(counts.choices[:, place]) == sums
    assert last(problem, 10**6).bound >= last(family("A", 16, 8, 1), 10**6).bound


def test_more_nodes_than_gpus_have_few_enough_choices() -> None:
    assert GpuCounts.applies(fleet(tables(by_node(family("A", 40, 4, 0)))))
    assert not GpuCounts.applies(fleet(tables(family("A", 40, 4, 0))))


@pytest.mark.slow
def test_it_proves_the_plan_of_a_fleet_whose_prices_alone_do_not() -> None:
    problem = family("A", 8, 4, 2)
    certificate = solve(problem, SolveBudget(seconds=None, work=30)).certificate
    assert certificate
    assert last(problem, 10**6).bound == pytest.approx(certificate.cost.total)
