"""Minutes of a small fleet: the figures agree with each other, and the same seed gives the same figures."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from simulation.measure.loads import make_load
from simulation.measure.requests import make_shapes
from simulation.measure.run import SimulationOrder, SimulationReport, set_auto, simulate
from simulation.serving.arrivals import make_requests_at
from simulation.truths import PLANNER, TruthOrder
from simulation.world import read_documents
from tests.simulation.worlds import document, gpu_type, model, node, policy, profile, service
from tests.support.postgres import DatabaseServer

FIELDS = {
    "hours", "heldPerHour", "plannedPerHour", "freshPerHour", "boundPerHour", "freshInHindsightPerHour",
    "boundInHindsightPerHour", "requests", "lateRequests", "shedRequests", "attainment", "minutesAboveFresh125",
    "peers", "plans", "changes", "rollouts", "unservedWhileCompleteKnown", "waitingMinutes", "seconds",
    "requestsPerSecondPerCore", "energyKwh", "utilisation", "jobs",
}  # fmt: skip
OF_THE_MACHINE = {"seconds", "requestsPerSecondPerCore"}


def order(truth: TruthOrder = PLANNER) -> SimulationOrder:
    documents = [gpu_type(), policy(mode="advisory"), node("node-0"), model("a"), profile("a")]
    documents += [model("b"), profile("b")]
    world = read_documents([*documents, service("a", 60.0), service("b", 30.0, mode="approve")])
    return SimulationOrder(world, make_load("moving", ("shop/a", "shop/b"), 0.1, 3), 0.1, 3, 2, 10.0, truth=truth)


def run(postgres: DatabaseServer, truth: TruthOrder = PLANNER, is_compared: bool = True) -> SimulationReport:
    url = postgres.create()
    try:
        return simulate(url, replace(order(truth), is_compared=is_compared))
    finally:
        postgres.drop(url)


@pytest.fixture(scope="module")
def report(postgres: DatabaseServer) -> SimulationReport:
    return run(postgres)


@pytest.mark.slow
def test_figures_agree_with_each_other_and_with_their_seed(postgres: DatabaseServer, report: SimulationReport) -> None:
    first, second = report, run(postgres)
    assert {name: value for name, value in first.figures.items() if name not in OF_THE_MACHINE} == {
        name: value for name, value in second.figures.items() if name not in OF_THE_MACHINE
    }
    found, samples = first.figures, first.samples
    assert found.keys() >= FIELDS
    assert 0 < found["boundPerHour"] <= found["freshPerHour"] <= found["heldPerHour"]
    assert found["boundInHindsightPerHour"] <= found["freshInHindsightPerHour"]
    assert found["heldPerHour"] == found["plannedPerHour"] == 2.4  # one of a node's two GPUs carries all of it
    counts = [counts for _, counts in samples.counts]
    assert found["requests"] == sum(counts[-1][name].ended - counts[0][name].ended for name in counts[0]) > 1000
    assert found["requests"] >= found["lateRequests"] + found["shedRequests"]
    assert min(shares["worstHour"] for shares in found["attainment"].values()) > 0.95
    assert [moment.at for moment in samples.fresh] == [300.0]


@pytest.mark.slow
def test_a_trace_is_played_request_by_request_and_a_job_is_done(postgres: DatabaseServer) -> None:
    """A job of 200 steps at 2 a second ends after some 100 s; requests come to shop/a alone, two at each moment."""
    speeds = {"v100-16gb": {"stepsPerSecond": {"50": 2.0, "100": 2.0}, "memoryGib": 2}}
    job = document("Job", "tune", {"type": "training", "steps": 200, "profiles": speeds}, "shop")
    documents = [gpu_type(), policy(), node("node-0"), model("a"), profile("a"), service("a", 20.0)]
    world = read_documents([*documents, model("b"), profile("b"), service("b", 5.0), job])
    times = np.repeat(np.arange(0.05, 600.0, 0.1), 2)
    trace = {"shop/a": make_requests_at(times)}
    asked = SimulationOrder(
        world, make_shapes(trace, {"shop/a": 20.0, "shop/b": 5.0}), 1 / 6, 3, 2, 10.0, is_compared=False, requests=trace
    )
    url = postgres.create()
    try:
        figures = simulate(url, asked).figures
    finally:
        postgres.drop(url)
    hours = (600 - 300) / 3600
    assert figures["requests"] == pytest.approx(np.count_nonzero(times >= 300), abs=20)  # some wait at either end
    assert figures["attainment"]["shop/b"]["share"] == 1.0
    assert figures["jobs"]["done"] == 1
    assert 100 <= figures["jobs"]["meanCompletionSeconds"] <= 300
    assert 2 * 40 * hours <= 1000 * figures["energyKwh"] <= 2 * 300 * hours  # two GPUs, between idle and full power
    assert 0 < figures["utilisation"]["mean"] < 1
    assert 0 <= figures["utilisation"]["spread"] <= 0.5


@pytest.mark.slow
def test_a_run_without_comparison_has_the_same_figures_of_its_own(
    postgres: DatabaseServer, report: SimulationReport
) -> None:
    whole, alone = report.figures, run(postgres, is_compared=False).figures
    assert {"freshPerHour", "peers"} & alone.keys() == set()
    assert all(value == whole[name] for name, value in alone.items() if name not in OF_THE_MACHINE)


@pytest.mark.slow
def test_spot_nodes_are_reclaimed_as_ordered(postgres: DatabaseServer) -> None:
    url, spot = postgres.create(), node("node-1")
    documents = [gpu_type(), policy(), node("node-0"), spot | {"spec": spot["spec"] | {"purchase": "spot"}}]
    world = read_documents([*documents, model("a"), profile("a"), service("a", 60.0)])
    shapes = make_load("steady", ("shop/a",), 0.1, 3)
    asked = replace(order(), world=world, shapes=shapes, hours=0.2, reclaim_every_seconds=180.0)
    try:
        assert simulate(url, asked).figures["reclaims"] == {"notices": 1, "emptied": 1, "short": 0}
    finally:
        postgres.drop(url)


@pytest.mark.slow
def test_a_made_truth_on_measured_profiles_is_reported_and_served(postgres: DatabaseServer) -> None:
    figures = run(postgres, TruthOrder("made", seed=2, profiles="measured")).figures
    assert figures["truth"] == {"name": "made", "seed": 2, "profiles": "measured"}
    assert min(shares["worstHour"] for shares in figures["attainment"].values()) > 0.95
    assert 0 < figures["boundPerHour"] <= figures["heldPerHour"]


def test_every_decision_of_a_simulated_world_is_carried_out() -> None:
    simulated = set_auto(order().world)
    specs = {manifest.kind: manifest.spec for manifest in simulated.manifests.values()}
    assert specs["Policy"]["mode"] == "auto"  # type: ignore[index]
    assert not any("mode" in manifest.spec for manifest in simulated.manifests.values() if manifest.kind == "Service")
    without = read_documents([gpu_type(), node("node-0")])
    assert [key.kind for key in set_auto(without).manifests if key.kind == "Policy"] == ["Policy"]
