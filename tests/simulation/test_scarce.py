"""Where GPUs are short, requests that arrive come before requests that are only expected."""

from __future__ import annotations

import pytest

from simulation.fleet.history import count_attained_shares
from simulation.run import open_simulation
from tests.simulation.test_too_few import CYCLE, TICK, changes_within, service, world

pytestmark = pytest.mark.slow


def test_gpus_go_to_requests_that_arrive_before_those_that_are_declared_and_do_not(database_url: str) -> None:
    """boast declares ten times what arrives, so that the fleet has no room for what honest gets."""
    declared = world(service("shop/boast", 2000.0), service("shop/honest", 400.0), nodes=2)
    with open_simulation(database_url, declared, {"shop/boast": lambda seconds: 0.1}) as simulation:
        simulation.advance(480, TICK)
        history, fleet = simulation.history, simulation.fleet
        before = history.mark(fleet)
        simulation.advance(20 * CYCLE, TICK)
        shares = count_attained_shares(before, history.mark(fleet))
        assert min(shares.values()) >= 0.98
        assert changes_within(simulation, 15 * CYCLE) == [], "what gave way does not come back and take it again"
