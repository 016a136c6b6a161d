"""Mudi's planner tries batches on a fleet that runs: a minute of each counts, and the next one is tried."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from lab.evaluate import testbeds
from lab.evaluate.mudi.experiments import RATES
from simulation.measure.run import set_auto
from simulation.run import Simulation, open_simulation
from simulation.world import set_policy
from solvers.planners.names import HETSEV, MUDI

pytestmark = pytest.mark.slow

MINUTES = 10
LOW_SHARE = 0.3  # of the declared rates: there several batches carry the load


def trials_of(simulation: Simulation) -> set[tuple[str, int]]:
    """Returns the batches that counted as tried, by instance."""
    known = simulation.last.last_question.knowledge if simulation.last else {}
    found: dict[str, Any] = known.get(MUDI, {}).get("trials", {})
    tried = {(name, trial) for name, series in found.items() for trial in map(tuple, series["trials"])}
    assert all(step_ms > 0 and latency_ms > 0 for _, (_, step_ms, latency_ms) in tried)
    return {(name, int(batch)) for name, (batch, _, _) in tried}


def test_batches_beside_trainings_are_tried_live_and_their_minutes_are_recorded(database_url: str) -> None:
    world = set_auto(testbeds.testbed("mudi", {name: rate * LOW_SHARE for name, rate in RATES.items()}))
    ran, tried = set[tuple[str, int]](), set[tuple[str, int]]()
    with open_simulation(database_url, set_policy(world, {"planner": MUDI}), seed=0, work=0) as simulation:
        for _ in simulation.seconds(60 * MINUTES, 2.0):
            ran |= {
                (wanted.id, int(wanted.batch.planned))
                for node in simulation.fleet.nodes.values()
                if node.memory.assignment
                for wanted in node.memory.assignment.instances
                if wanted.batch
            }
            tried |= trials_of(simulation)
        assert simulation.last
        assert simulation.last.snapshot
        assert simulation.last.snapshot.measured
    assert max(Counter(name for name, _ in tried).values()) >= 2
    assert tried <= ran


def test_planners_that_try_nothing_are_not_asked_again_for_a_new_minute(database_url: str) -> None:
    world = set_auto(testbeds.testbed("mudi", RATES))
    with open_simulation(database_url, set_policy(world, {"planner": HETSEV}), seed=0, work=0) as simulation:
        simulation.advance(240, 2.0)
        assert simulation.last
        assert simulation.last.snapshot
        assert not simulation.last.snapshot.measured
        assert simulation.planner.loads.measured()
