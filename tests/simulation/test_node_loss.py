"""A node is lost in a fleet whose services survive that: every promise is kept through it."""

from __future__ import annotations

import random

import pytest

from app.manifests.offline import DeclaredFiles
from simulation.fleet.history import count_attained_shares
from simulation.run import Simulation, open_simulation
from simulation.world import read_documents
from tests.simulation.worlds import SETTLING_TICK_SECONDS, gpu_type, model, node, policy, profile, service
from tests.support.soak import scaled

pytestmark = pytest.mark.slow

TICK = 1.0
SETTLED = 300.0
MADE_GOOD = 150.0  # from the loss until others serve in its place
THROUGH = 420.0  # from the loss until the plan has been made good
SIZES = [(3, 2, 0.5), (12, 2, 3.0), (4, 4, 2.0)]  # nodes, GPUs of each, and the load in multiples of RATES
RATES = {"a": 260.0, "b": 180.0, "c": 120.0, "d": 60.0}


def world(nodes: int = 6, gpus: int = 2, factor: float = 1.0, **availability: object) -> DeclaredFiles:
    documents = [gpu_type(), policy(), *(node(f"node-{number}", gpus) for number in range(nodes))]
    for name, declared in RATES.items():
        rate = factor * declared
        asked = service(name, rate, availability=availability) if availability else service(name, rate)
        documents += [model(name), profile(name), asked]
    return read_documents(documents)


def lose(simulation: Simulation, name: str) -> None:
    simulation.fleet.nodes.pop(name)
    simulation.post.lines.pop(name)


@pytest.mark.parametrize("seed", range(scaled(100, 1)))
def test_every_promise_is_kept_through_the_loss_of_a_node(database_url: str, seed: int) -> None:
    assert least_kept(database_url, world(surviveNodes=1), seed) >= 0.98


@pytest.mark.parametrize(("nodes", "gpus", "factor"), SIZES[: scaled(3, 1)])
@pytest.mark.parametrize("seed", range(scaled(5, 1)))
def test_every_promise_is_kept_in_fleets_of_other_sizes(
    database_url: str, nodes: int, gpus: int, factor: float, seed: int
) -> None:
    assert least_kept(database_url, world(nodes, gpus, factor, surviveNodes=1), seed) >= 0.98


def least_kept(database_url: str, declared: DeclaredFiles, seed: int) -> float:
    """Returns the least share within its SLO of any service, from the loss of a node that served until all is good."""
    with open_simulation(database_url, declared, seed=seed) as simulation:
        fleet, history = simulation.fleet, simulation.history
        simulation.advance(SETTLED, SETTLING_TICK_SECONDS)
        used = sorted(name for name, at in fleet.nodes.items() if at.serving())
        before = history.mark(fleet)
        lose(simulation, random.Random(seed).choice(used))
        simulation.advance(MADE_GOOD, TICK)
        simulation.advance(THROUGH - MADE_GOOD, SETTLING_TICK_SECONDS)
        return min(count_attained_shares(before, history.mark(fleet)).values())


def test_the_price_of_surviving_a_node_is_at_most_twice_the_fleet(database_url: str) -> None:
    """Small services need a second copy each: 4.8 an hour instead of 2.4."""
    costs = {}
    for asked in ({}, {"surviveNodes": 1}):
        with open_simulation(database_url, world(**asked)) as simulation:
            simulation.advance(SETTLED, 5.0)
            assert simulation.last is not None
            assert simulation.last.question is not None
            costs[len(asked)] = simulation.last.question.verdict.cost.resource
    assert costs[0] < costs[1] <= 2 * costs[0] * (1 + 1e-9)
