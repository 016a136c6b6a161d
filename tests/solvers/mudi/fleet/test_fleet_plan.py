"""Mudi plans a fleet: a GPU for each instance, the smallest SM%, and jobs beside services while SLOs hold."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from solvers.mudi.fleet import plan
from solvers.mudi.fleet.shapes import MudiResident, least_percents, longest_exec_ms, share_at_their_batches
from solvers.mudi.sharing.convex import raise_shares
from solvers.planning.judge import judge
from solvers.planning.judge.readings import value_at
from solvers.planning.plan import Plan
from solvers.planning.planner_draft import PlannerBudget, PlannerDraft
from solvers.planning.problem import Demand, Instance, Job, JobProfile, Problem, RunningState
from solvers.planning.search.promise import keep
from tests.solvers.hetsev.fleet.fleets import fleet

NOON = datetime(2026, 12, 1, 12, tzinfo=UTC)
PRESSING = Demand(cpu_cores=1, host_memory_gib=1, pressure=((10, 0.2), (90, 1.0)), sensitivity=0.3)


def job(name: str, **fields: object) -> Job:
    profile = JobProfile(((10, 1.0), (90, 8.0)), 4.0, PRESSING)
    found = Job(f"lab/{name}", "lab", "training", 1e5, {"fast": profile, "slow": profile})
    return replace(found, **fields)  # type: ignore[arg-type]


def add_jobs(problem: Problem, *jobs: Job) -> Problem:
    return replace(problem, jobs={each.name: each for each in jobs})


def planned(problem: Problem, before: PlannerDraft | None = None) -> PlannerDraft:
    """Returns the plan with what an earlier one made running, once the judge has accepted it."""
    state = RunningState(NOON, before.instances if before else (), (before.jobs or ()) if before else ())
    problem = replace(problem, state=state)
    draft = plan(problem, {}, PlannerBudget())
    assert draft.jobs is not None
    made = Plan(draft.instances, draft.jobs, draft.unserved, draft.unplaced)
    verdict = judge(problem, made, simulate=False, keeps=keep)
    assert verdict.is_right, verdict.violations
    return draft


def test_every_instance_has_a_gpu_without_another_service() -> None:
    draft = planned(fleet(rate=300.0))
    assert len({line.place for line in draft.instances}) == len(draft.instances)
    assert {line.service for line in draft.instances} == {"shop/a", "shop/b"}
    assert not draft.unserved


def test_shares_are_the_smallest_whole_percents_that_carry_the_rate() -> None:
    problem = fleet(rate=300.0)
    for line in planned(problem).instances:
        profile = problem.profile(line.service, line.variant, line.node)
        assert profile
        allowed = longest_exec_ms(problem, problem.services[line.service], line.batch, line.rate_per_second)
        curve = profile.latency_ms[line.batch]
        assert line.exec_ms <= allowed
        assert line.sm_percent == curve[0][0] or value_at(curve, line.sm_percent - 1) > allowed


@pytest.mark.slow
@pytest.mark.parametrize("pressure", [0.0, 0.7])
def test_cvxpy_finds_the_same_shares_as_the_closed_form(pressure: float) -> None:
    problem, compared = fleet(rate=900.0), 0
    for line in planned(problem).instances:
        service = problem.services[line.service]
        profile = problem.profile(line.service, line.variant, line.node)
        assert profile
        for share in (0.2, 0.5, 0.8, 1.0):
            resident = MudiResident(line, service, profile, share * line.rate_per_second, is_running=False)
            gpu = share_at_their_batches(problem, [resident], pressure, 1000.0)
            assert gpu is None or [least_percents(gpu)] == raise_shares([gpu])
            compared += gpu is not None
    assert compared >= 8


def test_a_load_that_moves_a_little_resizes_nothing_and_a_risen_one_does() -> None:
    first = planned(fleet(rate=300.0))
    shapes = {line.id: (line.sm_percent, line.batch) for line in first.instances}
    near = planned(fleet(rate=290.0), first)
    assert {line.id: (line.sm_percent, line.batch) for line in near.instances} == shapes
    risen = planned(fleet(rate=420.0), near)
    assert sum(line.sm_percent for line in risen.instances) > sum(sm for sm, _ in shapes.values())
    assert {line.id for line in first.instances} <= {line.id for line in risen.instances}


def test_another_gpu_is_taken_once_a_whole_one_could_not_carry_the_load() -> None:
    small, large = planned(fleet(rate=300.0)), planned(fleet(rate=900.0))
    assert len(large.instances) > len(small.instances)
    full = planned(fleet(rate=1e5))
    assert {entry.reason for entry in full.unserved} == {"each instance needs a GPU of its own, and all are in use"}


def test_services_that_another_planner_put_on_one_gpu_part_where_gpus_are_idle() -> None:
    problem = fleet(rate=600.0, slow_price=9.0)
    apart = planned(problem)
    shared = replace(apart, instances=tuple(map(_on_one_gpu, apart.instances)))
    assert [line.service for line in shared.instances] == ["shop/a", "shop/b"]
    draft = planned(problem, shared)
    assert len({line.place for line in draft.instances}) == len(draft.instances)
    assert not draft.unserved
    assert {line.id for line in shared.instances} & {line.id for line in draft.instances}


def test_services_on_the_only_gpu_stay_together() -> None:
    problem = fleet(rate=100.0)
    one = replace(problem, nodes={"fast-0": replace(problem.nodes["fast-0"], gpus=(0,))})
    shared = replace(planned(problem), instances=tuple(map(_on_one_gpu, planned(problem).instances)))
    draft = planned(one, shared)
    assert {line.id for line in draft.instances} == {line.id for line in shared.instances}


def _on_one_gpu(line: Instance) -> Instance:
    return replace(line, node="fast-0", gpu=0, sm_percent=min(line.sm_percent, 50))


def test_jobs_run_beside_services_and_split_what_is_spare() -> None:
    problem = add_jobs(fleet(rate=150.0), job("a"), job("b"), job("c"))
    draft = planned(problem)
    assert draft.jobs
    assert {placed.place for placed in draft.jobs} <= {line.place for line in draft.instances}
    for place in {placed.place for placed in draft.jobs}:
        parts = {placed.sm_percent for placed in draft.jobs if placed.place == place}
        assert len(parts) == 1
    assert {placed.job for placed in draft.jobs} | {rest.job for rest in draft.unplaced} == set(problem.jobs)
    alone = planned(fleet(rate=150.0))
    assert sum(line.sm_percent for line in draft.instances) >= sum(line.sm_percent for line in alone.instances)


def test_a_running_job_stays_and_leaves_once_the_service_needs_its_room() -> None:
    first = planned(add_jobs(fleet(rate=150.0), job("a")))
    again = planned(add_jobs(fleet(rate=160.0), job("a"), job("new")), first)
    assert first.jobs
    assert again.jobs
    place = {placed.job: placed.place for placed in again.jobs}
    assert place["lab/a"] == first.jobs[0].place
    full = planned(add_jobs(fleet(rate=1700.0), job("a")), first)
    assert not full.jobs
    assert [rest.job for rest in full.unplaced] == ["lab/a"]


def test_no_job_runs_beside_a_dedicated_service_or_misses_its_deadline() -> None:
    alone = planned(add_jobs(fleet(rate=150.0, is_dedicated=True), job("a")))
    assert not alone.jobs
    late = planned(add_jobs(fleet(rate=150.0), job("a", deadline=NOON + timedelta(seconds=60))))
    assert not late.jobs
    assert late.unplaced[0].reason == "beside a service it would miss its deadline"


@pytest.mark.parametrize("rate", [100.0, 800.0])
def test_the_same_question_has_the_same_plan(rate: float) -> None:
    problem = add_jobs(fleet(rate=rate), job("a"), job("b"))
    assert planned(problem) == planned(problem)
