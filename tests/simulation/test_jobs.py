"""A simulated job continues from its last save, as a real one does."""

from __future__ import annotations

from dataclasses import replace

import msgspec

from agents.contract.assignments import AssignedInstance, Assignment
from simulation.clock import Clock
from simulation.fleet.fleet import SimulatedFleet
from simulation.world import truth_of
from solvers.planning.problem import Job, JobProfile
from tests.simulation.worlds import small

STEPS_PER_SECOND = 10.0


def test_a_job_that_moves_to_another_node_keeps_its_steps() -> None:
    clock, truth = Clock(), truth_of(small())
    profile = JobProfile(((100, STEPS_PER_SECOND),), 2.0)
    tune = Job("shop/tune", "shop", "training", 1e6, {"v100-16gb": profile})
    fleet = SimulatedFleet(replace(truth, problem=replace(truth.problem, jobs={"shop/tune": tune})), clock)

    def advance(seconds: float) -> None:
        for _ in range(int(seconds * 4)):
            clock.advance(0.25)
            fleet.tick()

    def assign(node: str, generation: int, *instances: AssignedInstance) -> None:
        fleet.nodes[node].offer(Assignment(node, generation, 1, generation, instances=instances))

    def steps(node: str) -> float:
        return max((work.units for work in fleet.nodes[node].work.values()), default=0.0)

    job = AssignedInstance("tune-1", 0, "shop", job="tune", template="gpuwright-train", sm_percent=100, memory_gib=2)
    assign("node-0", 1, job)
    advance(60)
    assign("node-0", 2)
    advance(10)
    done = steps("node-0")
    assert done > 50 * STEPS_PER_SECOND
    assign("node-1", 3, msgspec.structs.replace(job, id="tune-2"))
    advance(20)
    assert steps("node-1") > done
