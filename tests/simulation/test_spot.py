"""Spot nodes are reclaimed with two minutes' notice, and every promise is kept through each."""

from __future__ import annotations

import random
from typing import Any

import pytest

from app.control.domain.events import Reason
from app.manifests.offline import DeclaredFiles
from app.store.world import events
from app.store.world.events import EventFilter
from simulation.history import attained_shares
from simulation.run import Simulation, simulated
from simulation.spot import NOTICE_SECONDS, SpotCloud
from simulation.world import of_documents
from tests.simulation.worlds import document, gpu_type, model, node, policy, profile, service
from tests.support.soak import scaled

NOTICES = scaled(50, 3)
PERCENTILE = 0.98  # of every service here
SPOT = tuple(f"spot-{number}" for number in range(5))
RATES = {"a": 900.0, "b": 600.0, "c": 200.0}


def spot_node(name: str) -> dict[str, Any]:
    found = node(name)
    return found | {"spec": found["spec"] | {"purchase": "spot"}}


def world(*names: str, rates: dict[str, float] = RATES, **more: Any) -> DeclaredFiles:
    """Services on spot nodes of two GPUs."""
    documents = [gpu_type(), policy(), *(spot_node(name) for name in names or SPOT)]
    for name, rate in rates.items():
        documents += [model(name), profile(name, **more), service(name, rate)]
    return of_documents(documents)


def settle(simulation: Simulation) -> None:
    simulation.advance(251)  # between two cycles
    assert all(simulation.fleet.ready(name) for name in simulation.fleet.declared)


def busiest(simulation: Simulation) -> str:
    spot = [simulation.fleet.nodes[name] for name in SPOT if name in simulation.fleet.nodes]
    return max(spot, key=lambda machine: (len(machine.serving()), machine.name)).name


def told(simulation: Simulation, reason: Reason) -> list[tuple[str, str]]:
    found = simulation.database.read(lambda c: events.recent(c, EventFilter(reasons=(str(reason),)), 100))
    return [(event.name, event.message) for event in found]


def test_every_promise_is_kept_through_each_notice(database_url: str) -> None:
    """The node is empty before its machine goes; no service is ever without a copy, and its share within SLO holds."""
    draw = random.Random(7)  # noqa: S311
    with simulated(database_url, world()) as simulation:
        settle(simulation)
        cloud = SpotCloud(simulation)
        for number in range(NOTICES):
            name = busiest(simulation) if number % 2 == 0 else draw.choice(SPOT)
            before = simulation.history.mark(simulation.fleet)
            cloud.give_notice(name)
            for _ in simulation.seconds(NOTICE_SECONDS + 60):
                assert all(simulation.fleet.ready(service) for service in simulation.fleet.declared), number
                if name in [*cloud._due] and simulation.clock.seconds + 2 > cloud._due[name]:
                    assert simulation.fleet.nodes[name].serving() == [], (number, "it should be empty by now")
                cloud.tick()
            shares = attained_shares(before, simulation.history.mark(simulation.fleet))
            assert min(shares.values()) >= PERCENTILE, (number, name, shares)
            cloud.give_back(name)
            simulation.advance(float(draw.randint(60, 120)))
