"""Fleets whose nodes are billed whole: no plan costs less than the least of all, and no bound is above it."""

from __future__ import annotations

from dataclasses import replace
from itertools import takewhile
from math import inf
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.families import family
from solvers.planning import exact
from solvers.planning.drafting.drafts import drafts, prepare
from solvers.planning.judge import judge
from solvers.planning.plan import Plan
from solvers.planning.problem import Node, Problem, RunningState
from solvers.planning.replay import replay_plan
from solvers.planning.search.promise import keep
from solvers.planning.search.realise import instances
from solvers.planning.search.tables import tables
from solvers.planning.solve import SolveBudget, find, solve
from tests.solvers.planning.bound.test_bound import last
from tests.solvers.planning.small_fleets import fleets, least_cost, price_of_gpu
from tests.support.soak import scaled


def by_node(problem: Problem) -> Problem:
    return replace(problem, nodes={name: replace(node, pricing="node") for name, node in problem.nodes.items()})


def counted(problem: Problem, plan: Plan) -> float:
    """Returns the price of the nodes and GPUs that a plan uses, by a plain count."""

    def price(node: Node) -> float:
        used = {instance.gpu for instance in plan.instances if instance.node == node.name}
        paid = len(node.gpus) if used and node.pricing == "node" else len(used)
        return paid * price_of_gpu(node)

    return sum(map(price, problem.nodes.values()))


@pytest.mark.slow
@settings(max_examples=scaled(200, 8), deadline=None)
@given(fleets(pricing="node"), st.integers(0, 3))
def test_the_least_cost_is_between_the_bound_and_the_plan(problem: Problem, mixed: int) -> None:
    r = Random(mixed)
    nodes = {
        name: replace(node, pricing=r.choice(["gpu", "node", "node", "paid"])) for name, node in problem.nodes.items()
    }
    problem = replace(problem, nodes=nodes)
    least, plan = least_cost(problem), solve(problem, SolveBudget(seconds=None, work=20))
    assert plan.certificate and plan.certificate.bound is not None
    assert plan.certificate.bound <= least * (1 + 1e-9)
    assert last(problem).bound <= least * (1 + 1e-9)
    assert least == inf or plan.certificate.cost.total >= least * (1 - 1e-9)  # inf: no plan serves all that can be
    verdict = judge(problem, plan)
    assert verdict.is_right
    assert verdict.cost.resource == plan.certificate.cost.resource == pytest.approx(counted(problem, plan))


def test_small_fleets_are_searched_exactly_and_large_ones_are_not() -> None:
    assert exact.applies(tables(by_node(family("A", 8, 4, 2))))
    assert not exact.applies(tables(by_node(family("A", 40, 4, 2))))


def test_nodes_of_one_gpu_are_searched_exactly_as_if_paid_by_gpu() -> None:
    problem = family("A", 8, 4, 2)
    nodes = {
        f"{node.name}-{gpu}": replace(node, name=f"{node.name}-{gpu}", gpus=(0,))
        for node in problem.nodes.values()
        for gpu in node.gpus
    }
    apart = by_node(replace(problem, nodes=nodes))
    assert exact.applies(tables(apart))
    assert not any(pool.node_sizes for pool in tables(apart).pools)


@pytest.fixture(scope="module")
def fleet() -> Problem:
    return by_node(family("A", 40, 20, 1, load=0.6))


@pytest.fixture(scope="module")
def planned(fleet: Problem) -> Plan:
    return solve(fleet, SolveBudget(seconds=None, work=80, seed=1))


@pytest.mark.slow
def test_a_plan_by_nodes_costs_less_than_one_by_gpus_that_is_billed_by_nodes(fleet: Problem, planned: Plan) -> None:
    by_gpu = replace(fleet, nodes={name: replace(node, pricing="gpu") for name, node in fleet.nodes.items()})
    blind = solve(by_gpu, SolveBudget(seconds=None, work=80, seed=1))
    assert planned.certificate
    assert planned.certificate.cost.total < counted(fleet, blind)
    assert judge(fleet, planned).is_right


def account(problem: Problem, work: int) -> tuple[float, float]:
    """Returns what is unserved and all that is paid, by its nodes, for the best draft of so many steps."""
    t = tables(problem)
    made = takewhile(lambda draft: draft.work <= work, drafts(prepare(t), seed=0))
    placed = min((draft for draft in made if draft.method), key=lambda draft: draft.cost).placed
    running, missed = instances(t, placed)
    verdict = judge(by_node(problem), Plan(tuple(running), unserved=tuple(missed)), simulate=False, keeps=keep)
    assert verdict.is_right
    return verdict.cost.unserved, verdict.cost.total


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3, scaled(40, 4)))
def test_a_fleet_that_is_hardly_large_enough_serves_as_much_by_node_as_by_gpu(seed: int) -> None:
    problem = family("C", 12, 8, seed, load=0.9)
    unserved, total = account(by_node(problem), 80)
    unserved_blind, total_blind = account(problem, 80)
    assert unserved <= unserved_blind + 1e-6
    assert total <= total_blind + 1e-6


@pytest.mark.slow
def test_a_plan_is_found_again_by_its_steps(fleet: Problem) -> None:
    solved = find(fleet, SolveBudget(None, 80, 1), alone=True)
    again = replay_plan(fleet, 1, solved.work, is_exact=False)
    assert [line.place for line in again.instances] == [line.place for line in solved.plan.instances]
    assert again.certificate and solved.plan.certificate
    assert again.certificate.cost == solved.plan.certificate.cost


@pytest.mark.slow
def test_a_plan_that_runs_is_kept_and_lower_rates_empty_nodes(fleet: Problem, planned: Plan) -> None:
    running = replace(fleet, state=RunningState(None, planned.instances))
    same = solve(running, SolveBudget(seconds=None, work=30))
    assert same.certificate and planned.certificate
    assert same.certificate.cost.total <= planned.certificate.cost.total
    rates = {name: service.rate_per_second * 0.4 for name, service in fleet.services.items()}
    fewer = solve(running.change_rates(rates), SolveBudget(seconds=None, work=80, seed=1))
    assert fewer.certificate
    assert fewer.certificate.cost.resource < planned.certificate.cost.resource
    assert judge(running.change_rates(rates), fewer, simulate=False, keeps=keep).is_right
