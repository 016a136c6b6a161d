"""Planner, fast lane and node loop together: an hour of steady load moves nothing, clocks stay at the plan."""

from __future__ import annotations

from pathlib import Path

import pytest

from simulation.fleet.history import count_attained_shares
from simulation.run import open_simulation
from simulation.shapes import steady
from tests.simulation.worlds import all_noisy, small
from tests.support.soak import SOAK
from tests.support.whole_node import WholeNode, make_whole_nodes

SECONDS = 3600.0 if SOAK else 120.0


@pytest.mark.slow
def test_an_hour_of_steady_load_changes_nothing_and_clocks_are_at_plan(database_url: str, tmp_path: Path) -> None:
    shapes = all_noisy(dict.fromkeys(("shop/a", "shop/b", "shop/c"), steady), 0.02)
    with open_simulation(database_url, small(), shapes, make_node=make_whole_nodes(tmp_path)) as simulation:
        simulation.advance(240)
        began, mark = simulation.clock.seconds, simulation.history.mark(simulation.fleet)
        assert all(simulation.fleet.ready(name) for name in simulation.fleet.services)
        for _ in simulation.seconds(SECONDS):
            for node in simulation.fleet.nodes.values():
                assert isinstance(node, WholeNode)
                assert node.agent.watch.power.excursions == ()
        assert simulation.history.since(began) == []
        assert min(count_attained_shares(mark, simulation.history.mark(simulation.fleet)).values()) >= 0.98
        assigned = [node for node in simulation.fleet.nodes.values() if node.memory.assignment]
        assert assigned
        for node in assigned:
            assert node.memory.assignment
            for gpu in node.memory.assignment.gpus:
                assert gpu.clock_mhz
                assert node.clock_mhz(gpu.index) == gpu.clock_mhz.planned
