"""Jobs on several GPUs: right by the judge, at the cost that is stated, on the cheapest GPUs, and where they run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from itertools import combinations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from solvers.planning.jobs import place_jobs
from solvers.planning.judge import JudgedPlan, judge
from solvers.planning.plan import Plan, Unplaced
from solvers.planning.problem import (
    Demand,
    GpuType,
    Instance,
    Job,
    JobProfile,
    Node,
    PlacedJob,
    Policy,
    Problem,
    RunningState,
    gpu_indexes,
)
from tests.solvers.planning.job_worlds import NOON, judged, worlds
from tests.support.soak import scaled

BIG = GpuType("big", 16, 40, 300, (600, 1200))
DEMAND = Demand(cpu_cores=4, host_memory_gib=8, power_w=((100, 200),))
PROFILES = {"big": JobProfile(((50, 2.0), (100, 3.0)), 10, DEMAND), "old": JobProfile(((100, 1.0),), 6, DEMAND)}


def wide(name: str, gpus: int = 2, **fields: object) -> Job:
    return replace(Job(f"lab/{name}", "lab", "training", 1000, PROFILES, gpus=gpus), **fields)  # type: ignore[arg-type]


def nodes(*counts: int, linked: int = 0, price: float = 2.0) -> dict[str, Node]:
    each = [
        Node(f"n{i}", "big", gpu_indexes(count), 16, 64, price + i, linked_gpus=linked)
        for i, count in enumerate(counts)
    ]
    return {node.name: node for node in each}


def world(fleet: dict[str, Node], *jobs: Job, running: tuple[PlacedJob, ...] = (), **policy: object) -> Problem:
    state = RunningState(NOON - timedelta(hours=1), (), running)
    return Problem({"big": BIG}, fleet, {}, {}, {}, {job.name: job for job in jobs}, Policy(**policy), {}, state)  # type: ignore[arg-type]


jobs = st.lists(
    st.builds(
        lambda gpus, priority, limit, deadline, preemptible: (gpus, priority, limit, deadline, preemptible),
        st.integers(2, 3),
        st.sampled_from([10.0, 100.0, 300.0]),
        st.sampled_from([None, 0.5, 3.0, 20.0]),
        st.sampled_from([None, NOON, NOON + timedelta(days=9)]),
        st.booleans(),
    ),
    min_size=1,
    max_size=3,
)


@pytest.mark.slow
@settings(max_examples=scaled(300, 30), deadline=None)
@given(worlds(most_gpus=4, widest=60), jobs)
def test_every_seat_is_right_and_costs_what_is_stated(
    drawn: tuple[Problem, tuple[Instance, ...]], several: list[tuple[int, float, float | None, object, bool]]
) -> None:
    problem, instances = drawn
    more = {
        f"lab/wide-{number}": wide(
            f"wide-{number}", gpus, priority=priority, max_price_per_hour=limit, deadline=deadline, is_preemptible=may
        )
        for number, (gpus, priority, limit, deadline, may) in enumerate(several)
    }
    problem = replace(problem, jobs={**problem.jobs, **more})
    before = judged(problem, instances, None)[0]
    first = place_jobs(problem, instances)
    verdict, _ = judged(problem, instances, first)
    assert verdict.violations == ()
    assert verdict.cost.job == pytest.approx(first.job_cost, rel=1e-9, abs=1e-9)
    assert verdict.cost.job <= before.cost.job + 1e-9
    state = RunningState(problem.state.now if problem.state else None, first.instances, first.jobs)
    again = place_jobs(replace(problem, state=state), first.instances)
    assert [job for job in again.jobs if job.gpus] == [job for job in first.jobs if job.gpus], "what runs stays"


def test_a_job_that_may_not_be_stopped_does_not_begin_late_either() -> None:
    late = wide("late", deadline=NOON - timedelta(hours=1), is_preemptible=False, priority=1000)
    found = place_jobs(world(nodes(2), late), ())
    assert [job for job in found.jobs if job.gpus] == []


def seats(problem: Problem, job: Job) -> Iterator[PlacedJob]:
    for node in problem.nodes.values():
        for gpus in combinations(node.gpus, job.gpus):
            yield PlacedJob(job.name, node.name, gpus[0], 100, 10, 3.0, gpus=gpus)


@settings(max_examples=scaled(200, 20), deadline=None)
@given(
    st.lists(st.integers(1, 5), min_size=1, max_size=3), st.sampled_from([0, 2, 3]), st.integers(2, 4),
    st.sampled_from([None, 5.0, 9.0, 30.0]), st.sampled_from([None, NOON, NOON - timedelta(minutes=58)]),
    st.sampled_from(["gpu", "node"]), st.sampled_from([None, 700.0, 1000.0, 5000.0]),
)  # fmt: skip
def test_the_cheapest_of_all_right_seats_is_found(
    counts: list[int], linked: int, gpus: int, limit: float | None, deadline: object, pricing: Any, budget: float | None
) -> None:
    fleet = {name: replace(node, pricing=pricing) for name, node in nodes(*counts, linked=linked).items()}
    job = wide("train", gpus, max_price_per_hour=limit, deadline=deadline)
    problem = world(fleet, job, power_budget_w=budget)
    plans = [Plan((), unplaced=(Unplaced(job.name),)), *(Plan((), (seat,)) for seat in seats(problem, job))]
    verdicts = [judge(problem, plan, simulate=False) for plan in plans]
    least = min(verdict.cost.job for verdict in verdicts if verdict.is_right)
    found = place_jobs(problem, ())
    verdict = judge(problem, Plan(found.instances, found.jobs, unplaced=found.unplaced), simulate=False)
    assert verdict.is_right, verdict.violations
    assert verdict.cost.job == pytest.approx(least)


def test_a_job_that_runs_keeps_its_gpus_though_others_cost_less() -> None:
    job = wide("train", max_price_per_hour=9.0)
    fleet = nodes(2, 2)
    there = PlacedJob(job.name, "n1", 0, 100, 10, gpus=(0, 1))
    assert [seat.places for seat in place_jobs(world(fleet, job), ()).jobs] == [(("n0", 0), ("n0", 1))]
    assert [seat.node for seat in place_jobs(world(fleet, job, running=(there,)), ()).jobs] == ["n1"]
    gone = world({**fleet, "n1": replace(fleet["n1"], gpus=(0,))}, job, running=(there,))
    assert [seat.node for seat in place_jobs(gone, ()).jobs] == ["n0"]


def test_jobs_that_run_on_one_gpu_give_way_only_to_what_weighs_more() -> None:
    small = wide("tune", 1, max_price_per_hour=5.0)
    fleet = nodes(2)
    running = (PlacedJob(small.name, "n0", 1, 50, 10),)
    light, heavy = wide("train", max_price_per_hour=4.9), wide("train", max_price_per_hour=9.0)
    assert [job.job for job in place_jobs(world(fleet, small, light, running=running), ()).jobs] == ["lab/tune"]
    assert [job.job for job in place_jobs(world(fleet, small, heavy, running=running), ()).jobs] == ["lab/train"]
    found = place_jobs(world(nodes(3), small, heavy, running=running), ())
    assert {job.job: job.places for job in found.jobs} == {
        "lab/train": (("n0", 0), ("n0", 2)),
        "lab/tune": (("n0", 1),),
    }


def test_a_gpu_whose_cap_is_too_low_is_left_out() -> None:
    node = replace(nodes(3)["n0"], caps_w=(200.0, 300.0, 300.0))
    found = place_jobs(world({"n0": node}, wide("train", max_price_per_hour=9.0)), ())
    assert [job.gpus for job in found.jobs] == [(1, 2)]


def test_others_get_what_is_left_and_nothing_beside_it() -> None:
    big, small = wide("train", max_price_per_hour=9.0), wide("tune", 1, max_price_per_hour=9.0)
    found = place_jobs(world(nodes(3), big, small), ())
    assert {job.job: job.places for job in found.jobs} == {
        "lab/train": (("n0", 0), ("n0", 1)),
        "lab/tune": (("n0", 2),),
    }
    (waits,) = place_jobs(world(nodes(2, 2), wide("train", 3, max_price_per_hour=90.0)), ()).unplaced
    assert "no node has 3 free GPUs" in waits.reason
    assert waits.relaxation == "a node with 3 free GPUs that are linked"
    (dear,) = place_jobs(world(nodes(2), wide("train", max_price_per_hour=3.0)), ()).unplaced
    assert "at a price" in dear.reason


@pytest.mark.parametrize(
    ("seat", "rule"),
    [
        (PlacedJob("lab/train", "n0", 0, 100, 10), "job_gpus_counted"),
        (PlacedJob("lab/train", "n0", 0, 100, 10, gpus=(0, 1, 2)), "job_gpus_counted"),
        (PlacedJob("lab/train", "n0", 1, 100, 10, gpus=(1, 2)), "job_gpus_linked"),
        (PlacedJob("lab/train", "n0", 0, 50, 10, gpus=(0, 1)), "job_gpus_whole"),
        (PlacedJob("lab/train", "n0", 1, 100, 10, gpus=(1, 0)), "job_gpu_exists"),
        (PlacedJob("lab/train", "n0", 3, 100, 10, gpus=(3, 4)), "job_gpu_exists"),
        (PlacedJob("lab/train", "n0", 2, 100, 10, gpus=(2, 3)), "whole_alone"),
        (PlacedJob("lab/dear", "n0", 0, 100, 10, gpus=(0, 1)), "job_may_open"),
    ],
)
def test_the_judge_names_what_is_wrong_with_a_seat(seat: PlacedJob, rule: str) -> None:
    fleet = nodes(4, linked=2)
    small = wide("tune", 1, max_price_per_hour=9.0)
    problem = world(fleet, wide("train", max_price_per_hour=9.0), wide("dear", max_price_per_hour=3.0), small)
    plan = Plan((), (seat, PlacedJob("lab/tune", "n0", 3, 50, 10)))
    assert rule in {violation.rule for violation in judge(problem, plan, simulate=False).violations}


def test_an_edit_of_such_a_job_is_judged_as_the_whole_plan() -> None:
    from solvers.planning.judge.plan_edit import edit_between

    job = wide("train", max_price_per_hour=9.0)
    problem = world(nodes(2, 2), job, energy_price_per_kwh=0.3)
    plans = [Plan((), (seat,)) for seat in seats(problem, job)] + [Plan(())]
    for before in plans:
        for after in plans:
            found = JudgedPlan(problem, before).apply(edit_between(before, after))
            whole = judge(problem, after, simulate=False)
            assert (found.violations, found.cost) == (whole.violations, whole.cost)
