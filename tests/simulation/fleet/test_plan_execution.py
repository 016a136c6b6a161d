"""A right plan, carried out: the fleet's own ground truth finds every promise met, and nothing held back."""

from __future__ import annotations

import pytest

from benchmarks.families import family
from simulation.clock import Clock
from simulation.fleet.fleet import SimulatedFleet
from simulation.fleet.plan_execution import carry_out
from simulation.fleet_truth import FleetTruth
from solvers.planning.solve import SolveBudget, solve


@pytest.mark.slow
@pytest.mark.parametrize("name", ["A", "C"])
def test_what_a_plan_promises_is_kept(name: str) -> None:
    problem = family(name, 6, 4, seed=2, load=0.6)
    plan = solve(problem, SolveBudget(seconds=None, work=3))
    unserved = {part.service for part in plan.unserved}
    clock = Clock()
    fleet = SimulatedFleet(FleetTruth(problem), clock, seed=1)
    carry_out(fleet, plan)
    for _ in range(30):
        clock.advance(1.0)
        fleet.tick()
    before = {name: (total.within, total.answered + total.errors) for name, total in fleet.services.items()}
    for _ in range(120):
        clock.advance(1.0)
        fleet.tick()
    assert all(node.held == () for node in fleet.nodes.values())
    for service, total in fleet.services.items():
        within, ended = before[service]
        share = (total.within - within) / max(1, total.answered + total.errors - ended)
        if service not in unserved:
            assert share * 100 >= problem.services[service].percentile - 0.6, service
