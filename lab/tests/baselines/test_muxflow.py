"""MuxFlow: no GPU has two services, and at most one job runs beside each, in what it leaves."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from lab.baselines.muxflow import plan_muxflow
from solvers.planning.problem import Demand, Job, JobProfile, Problem
from tests.solvers.baselines.whole import test_whole as whole
from tests.solvers.baselines.whole.test_whole import NOON, change_rates, planned
from tests.solvers.hetsev.fleet.fleets import fleet

MILD = Demand(cpu_cores=1, host_memory_gib=1, pressure=((10, 0.1), (90, 0.6)), sensitivity=0.3)


def job(name: str, speed: float = 1.0, **fields: object) -> Job:
    profile = JobProfile(((10, 1.0 * speed), (90, 8.0 * speed)), 4.0, MILD)
    found = Job(f"lab/{name}", "lab", "training", 1e5, {"fast": profile, "slow": profile})
    return replace(found, **fields)  # type: ignore[arg-type]


def add_jobs(problem: Problem, *jobs: Job) -> Problem:
    return replace(problem, jobs={each.name: each for each in jobs})


def test_muxflow_runs_one_job_at_most_beside_a_service_in_what_that_leaves() -> None:
    problem = add_jobs(fleet(100.0), job("a"), job("b"), job("c"), job("d"))
    draft = planned(plan_muxflow, problem)
    assert draft.jobs
    seats = {line.place: line for line in draft.instances}
    assert len({placed.place for placed in draft.jobs}) == len(draft.jobs) == len(seats)
    for placed in draft.jobs:
        seat = seats[placed.place]
        assert placed.sm_percent == min(100 - seat.sm_percent, 90)
        alone = problem.profile(seat.service, seat.variant, seat.node)
        assert alone
        slowed = seat.exec_ms / dict(alone.latency_ms[seat.batch]).get(seat.sm_percent, seat.exec_ms)
        assert slowed <= 1.2
    assert len(draft.unplaced) == 4 - len(draft.jobs)
    assert not draft.unserved


def test_muxflow_matches_for_the_most_throughput_of_all_jobs() -> None:
    """Two services leave different parts of their GPUs; which job loses more by the smaller one is tried by hand."""
    problem = change_rates(fleet(), 20.0, 120.0)
    steep = job("steep")
    flat = replace(job("flat"), profiles={
        kind: JobProfile(((10, 6.0), (90, 8.0)), 4.0, MILD) for kind in ("fast", "slow")
    })  # fmt: skip
    draft = planned(plan_muxflow, add_jobs(problem, steep, flat))
    assert draft.jobs
    parts = {placed.job: placed.sm_percent for placed in draft.jobs}
    assert parts["lab/steep"] > parts["lab/flat"]


def test_a_job_of_muxflow_stays_leaves_for_its_service_and_respects_deadlines_and_dedicated_gpus() -> None:
    first = planned(plan_muxflow, add_jobs(fleet(100.0), job("a")))
    assert first.jobs
    again = planned(plan_muxflow, add_jobs(fleet(110.0), job("a"), job("b", 5.0)), first)
    assert again.jobs
    assert {placed.job: placed.place for placed in again.jobs}["lab/a"] == first.jobs[0].place
    fixed = add_jobs(fleet(1500.0), job("a", is_preemptible=False))
    kept = planned(plan_muxflow, fixed, first)
    assert kept.jobs
    assert [(placed.job, placed.place) for placed in kept.jobs] == [("lab/a", first.jobs[0].place)]
    assert first.jobs[0].place in {line.place for line in kept.instances}, "its service keeps the SMs beside it"
    late = planned(plan_muxflow, add_jobs(fleet(100.0), job("a", deadline=NOON + timedelta(seconds=60))))
    assert [(rest.job, bool(late.jobs)) for rest in late.unplaced] == [("lab/a", False)]
    assert not planned(plan_muxflow, add_jobs(fleet(100.0, is_dedicated=True), job("a"))).jobs


def test_an_instance_has_its_gpu_and_stays_there_while_it_is_needed() -> None:
    whole.test_an_instance_has_its_gpu_and_stays_there_while_it_is_needed(plan_muxflow)
