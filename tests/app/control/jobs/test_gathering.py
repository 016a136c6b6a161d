"""Jobs that arrive alone wait briefly for others; the needs of services never wait."""

from __future__ import annotations

from typing import Any

import pytest

from app.control.domain.events import Reason
from simulation.run import Simulation, open_simulation
from simulation.world import put, read_documents
from tests.simulation.worlds import document, gpu_type, model, node, policy, profile, service

FLEET = [gpu_type(), policy(), node("node-0"), model("a"), profile("a")]
PROFILES = {"v100-16gb": {"stepsPerSecond": {"20": 1.0, "60": 2.6}, "memoryGib": 4}}


def job(name: str) -> dict[str, Any]:
    return document("Job", name, {"type": "training", "steps": 10_000, "profiles": PROFILES}, "lab")


def declared(simulation: Simulation, *more: dict[str, Any]) -> None:
    put(simulation.database, read_documents([*FLEET, service("a", 100.0), *more]))


@pytest.mark.slow
def test_jobs_are_gathered_and_a_service_is_not(database_url: str) -> None:
    with open_simulation(database_url, read_documents([*FLEET, service("a", 100.0)])) as simulation:
        simulation.advance(60)
        planner = simulation.planner
        assert not planner.world_moved()
        declared(simulation, job("one"))
        assert not planner.world_moved(), "it waits for others"
        assert planner.called_for is None
        simulation.plans = False
        simulation.advance(1)
        planner.advance()
        assert planner.called_for is Reason.JOB_APPLIED
        planner.cycle(Reason.JOB_APPLIED)
        assert not planner.world_moved()
        declared(simulation, job("one"), service("b", 50.0, of="a"))
        assert planner.world_moved()
