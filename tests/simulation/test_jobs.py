"""A simulated job continues from its last save, as a real one does."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from agents.contract.assignments import AssignedInstance, Assignment
from agents.programs.train.main import load_steps, save_steps
from app.control.domain.specs import job_tables
from app.manifests.model import Kind
from app.world.declare import declare
from simulation.clock import Clock
from simulation.fleet.fleet import SimulatedFleet
from simulation.run import Simulation, open_simulation
from simulation.serving.saves import SharedSaves
from simulation.world import ACTOR, read_documents, truth_of
from solvers.planning.problem import Job, JobProfile
from tests.simulation.worlds import Document, document, gpu_type, model, node, policy, profile, service, small

STEPS_PER_SECOND = 10.0


def test_what_simulated_jobs_save_a_real_agents_job_continues(tmp_path: Path) -> None:
    saves = SharedSaves(tmp_path / "checkpoints")
    saves["shop/tune"] = 41.9
    path = tmp_path / "checkpoints" / "shop.tune"
    assert load_steps(path) == 41
    save_steps(path, 50)  # by gpuwright-train on the real node
    again = SharedSaves(tmp_path / "checkpoints")
    assert dict(again) == {"shop/tune": 50.0}
    path.write_text("{")
    assert again.get("shop/tune", 0.0) == 0.0
    del again["shop/tune"]
    assert not path.exists()


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


def declare_job(**profile_fields: object) -> Document:
    spec = {"type": "training", "steps": 100_000, "profiles": {"v100-16gb": {"memoryGib": 2} | profile_fields}}
    return document("Job", "tune", spec, "shop")


def read_planned_speeds(simulation: Simulation) -> dict[str, float]:
    """Returns the speeds by SM% that plans count on."""
    declared = simulation.planner.store.snapshot(lambda _: {}).declared
    (job,) = (item.spec for item in declared if item.kind == "Job")
    return dict(job_tables(job)["v100-16gb"][0])


@pytest.mark.slow
def test_the_speed_of_a_job_that_declares_none_is_learned_while_it_runs(database_url: str) -> None:
    fleet = [gpu_type(), policy(), node("node-0", gpus=1), model("a"), profile("a"), service("a", 20.0)]
    true = {"stepsPerSecond": {"10": 0.1 * STEPS_PER_SECOND, "100": STEPS_PER_SECOND}}
    with open_simulation(database_url, read_documents([*fleet, declare_job(**true)])) as simulation:
        (without,) = read_documents([*fleet, declare_job()]).of(Kind.JOB)
        simulation.database.write(lambda connection: declare(connection, ACTOR, [without]))
        simulation.advance(60, 2.0)
        assert read_planned_speeds(simulation) == {"10": 100_000 / 36_000, "100": 100_000 / 3600}, "an hour is assumed"
        simulation.advance(240, 2.0)
        learned = read_planned_speeds(simulation)
        assert learned["100"] == pytest.approx(STEPS_PER_SECOND, rel=0.15), "neighbours slow it down, too"
        assert learned["10"] == pytest.approx(learned["100"] / 10)
        simulation.advance(120, 2.0)
        assert read_planned_speeds(simulation) == learned, "a pace that stays is learned once"
