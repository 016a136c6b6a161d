"""A job gives its GPU to a service that needs it, waits in host memory, and goes on there once the load has fallen."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from sqlalchemy import text

from agents.keeper.copies import NodeCopy, Stage
from app.control.jobs import rows
from app.manifests.offline import DeclaredFiles
from app.store.fleet import cordons
from simulation.run import Simulation, open_simulation
from simulation.shapes import spike
from simulation.world import read_documents
from tests.simulation.worlds import document, gpu_type, model, node, policy, profile, service

pytestmark = pytest.mark.slow

TUNE = "lab/tune"
BEGINS, HOLD = 240.0, 240.0
MOST_SECONDS = 2400
RUNS = {"stepsPerSecond": {"20": 2.0, "40": 4.0}, "memoryGib": 6, "hostMemoryGib": 8, "pressure": 0.1}
JOB = {"type": "training", "steps": 10**6, "swap": True, "maxPricePerHour": 5, "profiles": {"v100-16gb": RUNS}}
REASONS = "SELECT reason FROM event WHERE kind = 'Job' ORDER BY id"
INTERVALS = "SELECT started_at, ended_at FROM usage_interval WHERE job = 'tune' ORDER BY started_at"


def a_world(planner: str = "joint") -> DeclaredFiles:
    return read_documents(
        [
            gpu_type(), node("n1", gpus=1), policy(planner=planner, pricing="share"), model("a"), profile("a"),
            service("a", 60.0), document("Job", "tune", JOB, "lab"),
        ]
    )  # fmt: skip


@pytest.mark.parametrize("planner", ["joint", "mudi"])
def test_it_waits_in_host_memory_while_its_gpu_is_needed(database_url: str, planner: str) -> None:
    stages: list[Stage] = []
    units = 0.0
    with open_simulation(
        database_url, a_world(planner), {"shop/a": spike(BEGINS, 4.5, 30.0, HOLD)}, seed=1, work=0
    ) as simulation:
        for _ in simulation.seconds(MOST_SECONDS, 2.0):
            jobs = [copy for copy in simulation.fleet.nodes["n1"].alive() if copy.wanted.job]
            assert len(jobs) <= 1
            for copy in jobs:
                work = simulation.fleet.nodes["n1"].work[copy.id]
                assert work.units >= units, "work was repeated"
                units = work.units
                if not stages or stages[-1] is not copy.stage:
                    stages.append(copy.stage)
            if stages[-2:] == [Stage.RETURNING, Stage.READY]:
                break
        simulation.advance(120, 2.0)
        with simulation.database.engine.connect() as connection:
            reasons = list(connection.execute(text(REASONS)).scalars())
            intervals = list(connection.execute(text(INTERVALS)))
    assert stages == [
        Stage.STARTING, Stage.READY, Stage.SWAPPING, Stage.SWAPPED, Stage.RETURNING, Stage.READY,
    ]  # fmt: skip
    assert [reason for reason in reasons if reason in ("job_swapped", "job_resumed")] == ["job_swapped", "job_resumed"]
    (_, ended), (again, _) = intervals
    assert (again - ended).total_seconds() > HOLD / 2, "host memory is not billed as a GPU"


def jobs_on(simulation: Simulation) -> list[NodeCopy]:
    return [copy for copy in simulation.fleet.nodes["n1"].alive() if copy.wanted.job]


def is_said_to_wait(simulation: Simulation) -> bool:
    with simulation.database.engine.connect() as connection:
        return rows.read(connection)[TUNE].is_swapped


def run_until(simulation: Simulation, is_so: Callable[[], bool]) -> None:
    assert any(is_so() for _ in simulation.seconds(MOST_SECONDS, 2.0))


def is_swapped(simulation: Simulation) -> bool:
    return [copy.stage for copy in jobs_on(simulation)] == [Stage.SWAPPED] and is_said_to_wait(simulation)


def test_it_waits_on_a_cordoned_node_and_leaves_one_that_is_drained(database_url: str) -> None:
    def close(simulation: Simulation, mode: str) -> None:
        simulation.database.write(
            lambda connection: cordons.put(connection, "n1", cordons.ALL_GPUS, mode, None, "ops", "")
        )

    with open_simulation(
        database_url, a_world(), {"shop/a": spike(BEGINS, 4.5, 30.0, MOST_SECONDS)}, work=0
    ) as simulation:
        run_until(simulation, lambda: is_swapped(simulation))
        close(simulation, "cordon")
        simulation.advance(120, 2.0)
        assert is_swapped(simulation)
        close(simulation, "drain")
        run_until(simulation, lambda: not jobs_on(simulation) and not is_said_to_wait(simulation))


def test_a_process_that_dies_in_host_memory_is_not_said_to_wait_there(database_url: str) -> None:
    with open_simulation(database_url, a_world(), {"shop/a": spike(BEGINS, 4.5, 30.0, HOLD)}, work=0) as simulation:
        run_until(simulation, lambda: is_swapped(simulation))
        (waiting,) = jobs_on(simulation)
        simulation.fleet.nodes["n1"].kill(waiting.id)
        run_until(simulation, lambda: not is_said_to_wait(simulation))
        run_until(simulation, lambda: [copy.stage for copy in jobs_on(simulation)] == [Stage.READY])
        assert jobs_on(simulation)[0].id != waiting.id
