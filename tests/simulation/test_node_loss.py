"""A node is lost in a fleet whose services survive that: every promise is kept through it."""

from __future__ import annotations

import random

import pytest

from app.manifests.offline import DeclaredFiles
from simulation.history import attained_shares
from simulation.run import Simulation, simulated
from simulation.world import of_documents
from tests.simulation.worlds import gpu_type, model, node, policy, profile, service
from tests.support.soak import scaled

TICK = 1.0
SETTLED = 300.0
THROUGH = 420.0  # from the loss until the plan has been made good
RATES = {"a": 260.0, "b": 180.0, "c": 120.0, "d": 60.0}


def world(**availability: object) -> DeclaredFiles:
    documents = [gpu_type(), policy(), *(node(f"node-{number}") for number in range(6))]
    for name, rate in RATES.items():
        asked = service(name, rate, availability=availability) if availability else service(name, rate)
        documents += [model(name), profile(name), asked]
    return of_documents(documents)


def lose(simulation: Simulation, name: str) -> None:
    simulation.fleet.nodes.pop(name)
    simulation.post.lines.pop(name)


@pytest.mark.parametrize("seed", range(scaled(100, 3)))
def test_every_promise_is_kept_through_the_loss_of_a_node(database_url: str, seed: int) -> None:
    with simulated(database_url, world(surviveNodes=1), seed=seed) as simulation:
        fleet, history = simulation.fleet, simulation.history
        simulation.advance(SETTLED, TICK)
        used = sorted(name for name, at in fleet.nodes.items() if at.serving())
        before = history.mark(fleet)
        lose(simulation, random.Random(seed).choice(used))
        simulation.advance(THROUGH, TICK)
        assert min(attained_shares(before, history.mark(fleet)).values()) >= 0.98


def test_the_price_of_surviving_a_node_is_at_most_twice_the_fleet(database_url: str) -> None:
    """Small services need a second copy each: 4.8 an hour instead of 2.4."""
    costs = {}
    for asked in ({}, {"surviveNodes": 1}):
        with simulated(database_url, world(**asked)) as simulation:
            simulation.advance(SETTLED, 5.0)
            assert simulation.last is not None
            assert simulation.last.question is not None
            costs[len(asked)] = simulation.last.question.verdict.cost.resource
    assert costs[0] < costs[1] <= 2 * costs[0] * (1 + 1e-9)
