"""Jobs next to services: valid by the judge, cheapest and then fastest, and no service's SLO or price changes."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from solvers.latency import max_rate
from solvers.planning.jobs import JobPlan, place_jobs
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
    Profile,
    RunningState,
    Service,
    Variant,
    gpu_indexes,
)
from tests.solvers.planning.job_worlds import NOON, brute_force, judged, worlds
from tests.support.soak import scaled

World = tuple[Problem, tuple[Instance, ...]]


@pytest.mark.slow
@settings(max_examples=scaled(300, 30), deadline=None)
@given(worlds(most_gpus=4, widest=60))
def test_every_placement_is_right_and_costs_services_nothing(world: World) -> None:
    problem, instances = world
    before = judged(problem, instances, None)[0]
    for work in (0, 5000):
        found = place_jobs(problem, instances, work)
        verdict, _ = judged(problem, instances, found)
        assert verdict.violations == ()
        assert verdict.cost.resource <= before.cost.resource * (1 + 1e-9)
        assert verdict.cost.job == pytest.approx(found.job_cost, rel=1e-9, abs=1e-9)
        assert verdict.cost.job <= before.cost.job + 1e-9


# Unshrunk: it takes a thousand judgements to try everything.
@pytest.mark.slow
@settings(max_examples=scaled(100, 10), deadline=None, phases=[Phase.generate])
@given(worlds(most_gpus=3, widest=2, plain=True))
def test_a_small_world_gets_what_trying_everything_finds(world: World) -> None:
    problem, instances = world
    verdict, seconds = judged(problem, instances, place_jobs(problem, instances))
    cost, least = brute_force(problem, instances)
    assert verdict.cost.job == pytest.approx(cost, rel=1e-6, abs=1e-6)
    assert seconds == pytest.approx(least, rel=1e-6)


@settings(max_examples=scaled(300, 30), deadline=None)
@given(worlds(most_gpus=4, widest=60))
def test_what_runs_stays_when_nothing_changes(world: World) -> None:
    problem, instances = world
    first = place_jobs(problem, instances)
    state = RunningState(problem.state.now if problem.state else None, first.instances, first.jobs)
    again = place_jobs(replace(problem, state=state), first.instances)
    assert again.jobs == first.jobs
    assert again.instances == first.instances


@settings(max_examples=scaled(300, 30), deadline=None)
@given(worlds(most_gpus=4, widest=60), st.integers(0, 2000))
def test_the_order_of_the_input_changes_nothing(world: World, work: int) -> None:
    problem, instances = world
    turned = replace(
        problem, nodes=dict(reversed(list(problem.nodes.items()))), jobs=dict(reversed(list(problem.jobs.items())))
    )
    assert replace(place_jobs(turned, instances, work), instances=()) == replace(
        place_jobs(problem, instances, work), instances=()
    )


@settings(max_examples=scaled(300, 30), deadline=None)
@given(worlds(most_gpus=4, widest=60))
def test_a_running_job_that_is_not_preemptible_stays(world: World) -> None:
    problem, instances = replace(world[0], state=RunningState(NOON)), world[1]  # none is late, now or then
    first = place_jobs(problem, instances)
    if not first.jobs:
        return
    name = first.jobs[0].job
    bound = replace(
        problem,
        jobs={**problem.jobs, name: replace(problem.jobs[name], is_preemptible=False, max_price_per_hour=9)},
        state=RunningState(NOON, first.instances, first.jobs),
    )
    again = place_jobs(bound, first.instances)
    assert judged(bound, first.instances, again)[0].violations == ()
    assert [placed.place for placed in again.jobs if placed.job == name] == [first.jobs[0].place]


@settings(max_examples=scaled(300, 30), deadline=None)
@given(worlds(most_gpus=3, widest=30))
def test_a_named_relaxation_lets_the_job_run(world: World) -> None:
    problem, instances = world
    found = place_jobs(problem, instances)
    for unplaced in found.unplaced:
        helped = relaxed(problem, unplaced.job, unplaced.relaxation)
        if helped:
            now = problem.state.now if problem.state else None
            helped = replace(helped, state=RunningState(now, found.instances, found.jobs))
            again = place_jobs(helped, found.instances)
            assert unplaced.job in {placed.job for placed in again.jobs}, unplaced


def relaxed(problem: Problem, name: str, text: str) -> Problem | None:
    """Applies the change in `text` to the problem; None if it names hardware."""
    job = problem.jobs[name]
    if deadline := re.match(r"deadline: (\S+)", text):
        job = replace(job, deadline=datetime.fromisoformat(deadline[1]))
    if "has room for it" in text:
        if price := re.search(r"maxPricePerHour: ([\d.]+)", text):
            job = replace(job, max_price_per_hour=float(price[1]))
        if priority := re.search(r"priority: (\d+)", text):
            job = replace(job, priority=int(priority[1]))
    if job == problem.jobs[name]:
        return None
    return replace(problem, jobs={**problem.jobs, name: job})


# Cases to read: one type, a few GPUs, no services

CARD = GpuType("card", 16, 30, 250, (1000.0,))


def fleet(*jobs: Job, price: float = 1.0, gpus: int = 2, owned: int = 0, **policy: float) -> Problem:
    nodes = {"rented": Node("rented", "card", gpu_indexes(gpus), 16, 64, price)}
    if owned:
        nodes["owned"] = Node("owned", "card", gpu_indexes(owned), 16, 64, price, "owned")
    return Problem({"card": CARD}, nodes, {}, {}, {}, {job.name: job for job in jobs},
                   Policy(**policy), state=RunningState(NOON))  # type: ignore[arg-type]  # fmt: skip


def job(name: str, pace: float = 1.0, memory_gib: float = 4.0, **fields: object) -> Job:
    profile = JobProfile(((20, pace), (100, 4 * pace)), memory_gib, Demand(pressure=((100, 0.5),), sensitivity=0.2))
    return replace(Job(name, "lab", "training", 3600.0, {"card": profile}), **fields)  # type: ignore[arg-type]


def homes(found: JobPlan) -> dict[str, tuple[str, int]]:
    return {placed.job: placed.place for placed in found.jobs}


def test_a_job_without_deadline_or_price_runs_only_where_that_is_free() -> None:
    assert place_jobs(fleet(job("a")), ()).jobs == ()
    assert homes(place_jobs(fleet(job("a"), owned=1), ())) == {"a": ("owned", 0)}


def test_a_job_opens_a_gpu_that_its_price_allows() -> None:
    found = place_jobs(fleet(job("a", max_price_per_hour=1.2)), ())
    assert homes(found) == {"a": ("rented", 0)} and found.job_cost == pytest.approx(1.0)
    dear = place_jobs(fleet(job("a", max_price_per_hour=0.8)), ())
    assert dear.jobs == () and dear.job_cost == pytest.approx(0.8)
    assert dear.unplaced[0].relaxation.startswith("maxPricePerHour: 1; rented/0 has room")


def test_others_ride_along_on_an_opened_gpu() -> None:
    found = place_jobs(fleet(job("a", max_price_per_hour=1.2), job("b")), ())
    assert homes(found) == {"a": ("rented", 0), "b": ("rented", 0)}
    assert sum(placed.sm_percent for placed in found.jobs) == 100


def test_two_deadlines_share_a_gpu_rather_than_open_two() -> None:
    soon = NOON + timedelta(hours=1)
    found = place_jobs(fleet(job("a", deadline=soon), job("b", deadline=soon)), ())
    assert len(set(homes(found).values())) == 1 and found.job_cost == pytest.approx(1.0)
    hurried = [job(name, deadline=NOON + timedelta(minutes=18)) for name in "ab"]  # 3.33 of at most 4 a second
    assert place_jobs(fleet(*hurried), ()).job_cost == pytest.approx(2.0)


def test_a_gpu_too_dear_for_one_is_opened_for_three() -> None:
    soon, three = NOON + timedelta(hours=2), "abc"
    cheap = [job(name, deadline=soon, priority=1) for name in three]  # half a unit of price an hour each
    assert place_jobs(fleet(cheap[0]), ()).jobs == ()
    assert len(place_jobs(fleet(*cheap), ()).jobs) == 3


def test_a_deadline_nobody_can_meet_is_told_with_one_that_can_be() -> None:
    found = place_jobs(fleet(job("a", deadline=NOON + timedelta(minutes=10))), ())
    (unplaced,) = found.unplaced
    assert unplaced.reason == "its deadline is in 600 s, and no GPU with room for it finishes it by then"
    assert unplaced.relaxation == "deadline: 2026-12-01T12:15:02+00:00"  # 3,600 units at 4 a second, rounded up
    without = replace(fleet(job("a", deadline=NOON)), state=None)
    assert len(place_jobs(without, ()).jobs) == 1  # without a now, deadlines are not judged


def test_a_deadline_that_has_passed_and_one_beyond_all_calendars_are_told_so() -> None:
    passed = place_jobs(fleet(job("a", deadline=NOON - timedelta(minutes=10))), ()).unplaced[0]
    assert passed.reason == "its deadline, 2026-12-01T11:50:00+00:00, has passed"
    endless = replace(job("a", deadline=NOON + timedelta(minutes=10)), units=1.1e12)
    (unplaced,) = place_jobs(fleet(endless), ()).unplaced
    assert unplaced.relaxation.startswith("fewer steps or requests: these would take 8.71e+03 years")


def test_who_must_stay_is_late_and_says_so() -> None:
    late = job("a", deadline=NOON + timedelta(minutes=10), is_preemptible=False)
    problem = replace(fleet(late, owned=1), state=RunningState(NOON, (), (PlacedJob("a", "owned", 0, 50, 4.0),)))
    found = place_jobs(problem, ())
    assert homes(found) == {"a": ("owned", 0)} and found.jobs[0].sm_percent == 50
    assert (
        "is not preemptible, and at 2.125 units a second on owned/0 it misses its deadline" in found.unplaced[0].reason
    )


def test_the_faster_job_does_not_take_what_only_the_larger_can_use() -> None:
    large = job("z", memory_gib=14.0)
    problem = fleet(job("a", memory_gib=10.0), large, owned=2)
    assert set(homes(place_jobs(problem, ())).values()) == {("owned", 0), ("owned", 1)}


def test_many_jobs_are_placed_right_within_little_work() -> None:
    jobs = [
        job(f"j{place:02}", 1 + place % 5, 2 + place % 7, max_price_per_hour=place % 3 or None) for place in range(40)
    ]
    problem = fleet(*jobs, gpus=8, owned=6)
    quick, better = place_jobs(problem, (), 0), place_jobs(problem, (), 3000)
    for found in (quick, better):
        assert judged(problem, (), found)[0].violations == ()
    assert better.job_cost <= quick.job_cost + 1e-9


def by_node(problem: Problem) -> Problem:
    return replace(problem, nodes={name: replace(node, pricing="node") for name, node in problem.nodes.items()})


def test_two_jobs_on_two_gpus_of_a_node_that_is_billed_whole_open_it_once() -> None:
    hurried = [job(name, deadline=NOON + timedelta(minutes=18)) for name in "ab"]  # 3.33 of at most 4 a second
    problem = by_node(fleet(*hurried))
    for work in (0, 5000):
        found = place_jobs(problem, (), work)
        assert len(found.jobs) == 2 and found.job_cost == pytest.approx(2.0)
        assert judged(problem, (), found)[0].cost.job == pytest.approx(2.0)


def test_a_node_too_dear_for_each_gpus_jobs_is_opened_for_all_of_them() -> None:
    hurried = [job(name, deadline=NOON + timedelta(minutes=18), priority=3) for name in "ab"]  # 1.5 an hour each
    problem = by_node(fleet(*hurried))
    assert place_jobs(by_node(fleet(hurried[0])), ()).jobs == ()
    found = place_jobs(problem, ())
    assert len(found.jobs) == 2 and found.job_cost == pytest.approx(2.0)
    assert judged(problem, (), found)[0].violations == ()


def test_a_node_that_jobs_opened_is_emptied_where_they_have_room_elsewhere() -> None:
    jobs = [job(name, deadline=NOON + timedelta(hours=2)) for name in "abc"]
    nodes = {name: Node(name, "card", gpu_indexes(2), 16, 64, 1.0, pricing="node") for name in ("n", "o")}
    running = tuple(PlacedJob(name, node, 0, 50, 4.0) for name, node in zip("abc", "nno", strict=True))
    problem = replace(fleet(*jobs), nodes=nodes, state=RunningState(NOON, (), running))
    found = place_jobs(problem, ())
    assert {placed.node for placed in found.jobs} == {"n"} and found.job_cost == pytest.approx(2.0)


def test_a_job_that_a_service_needs_as_its_neighbour_keeps_its_place() -> None:
    """Strangers on the SMs that it leaves would slow the service too much, though it runs faster elsewhere."""
    heavy = Demand(pressure=((100, 0.4),))
    a, b = (
        replace(job(name), profiles={"card": JobProfile(((20, 1.0), (100, 4.0)), 4.0, demand)})
        for name, demand in (("a", heavy), ("b", Demand()))
    )
    problem = fleet(replace(a, is_preemptible=False), b, owned=2, pricing="share")  # type: ignore[arg-type]
    profile = Profile("m", "v", "card", {4: ((10, 20.0), (100, 5.0))}, {4: 1.5}, Demand(sensitivity=0.5))
    exec_ms, slo_ms = 20.0 * 1.225, 90.0  # among strangers on 90 % of the SMs, as it was planned
    rate = min(max_rate(4, exec_ms * 1.05, slo_ms, 98)[0], 0.8 * 4 / exec_ms * 1000)
    problem = replace(
        problem,
        models={"m": (Variant("v", 0.8),)},
        profiles={profile.key: profile},
        services={"shop/m": Service("shop/m", "shop", "m", ("v",), slo_ms, 98, rate)},
    )
    instances = (Instance("i", "shop/m", "owned", 0, "v", 4, 0.0, 10, 1.5, 1000.0, rate, exec_ms),)
    running = tuple(PlacedJob(name, "owned", 0, 45, 4.0) for name in "ab")
    found = place_jobs(replace(problem, state=RunningState(NOON, instances, running)), instances)
    assert homes(found) == {"a": ("owned", 0), "b": ("owned", 0)}
    assert judged(problem, instances, found)[0].violations == ()
