"""The throughput-oriented queue: its order, the pause after a failed placement, and what it remembers of it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.contract.assignments import AssignedInstance
from app.control.domain.desired import NodeDesired
from app.control.domain.snapshot import DeclaredObject, JobProgress, NodeStatus, Snapshot
from app.control.formulate.pose import pose
from app.control.jobs.order import JobTask, sort_tasks
from app.control.jobs.queue import FIRST_WAIT, LONGEST_WAIT, RUNNING_WEIGHT_FACTOR, apply_answer, queue_jobs
from app.control.jobs.room import UnusedGpu, free_capacity
from app.control.jobs.state import JobPhase, JobState
from app.control.jobs.window import Arrivals, GatheringWindow, count_arrivals
from solvers.planning.plan import Plan, Unplaced
from solvers.planning.problem import PlacedJob
from solvers.planning.solve import SolveBudget, solve

NOON = datetime(2026, 12, 1, 12, tzinfo=UTC)
GPU_TYPE = {"memoryGib": 16, "smCount": 80, "pricePerHour": 1.2, "idleW": 40, "maxW": 300, "clocksMhz": [1530]}


def job(name: str, steps: int = 3600, hours: float | None = None, **fields: Any) -> DeclaredObject:
    """Ten steps a second on a whole GPU, one on a tenth."""
    spec: dict[str, Any] = {
        "type": "training", "steps": steps,
        "profiles": {"big": {"stepsPerSecond": {"10": 1.0, "100": 10.0}, "memoryGib": 4}},
    }  # fmt: skip
    if hours is not None:
        spec["deadline"] = (NOON + timedelta(hours=hours)).isoformat()
    return DeclaredObject("Job", "lab", name, {**spec, **fields})


def snapshot(*declared: DeclaredObject, gpus: int = 1, busy: dict[int, float] | None = None, **fields: Any) -> Snapshot:
    """One owned node; `busy` is the part of each GPU that services hold."""
    node = DeclaredObject(
        "Node", "", "n1", {"gpuType": "big", "gpus": gpus, "cpuCores": 64, "memoryGib": 256, "purchase": "owned"}
    )
    held = tuple(
        AssignedInstance(f"s{gpu}", gpu, tenant="shop", service="search", sm_percent=sm, memory_gib=2.0)
        for gpu, sm in (busy or {}).items()
    )
    in_force = fields.pop("in_force", {"n1": NodeDesired(held)})
    return Snapshot(
        at=fields.pop("at", NOON), epoch=1, declared=(DeclaredObject("GpuType", "", "big", GPU_TYPE), node, *declared),
        nodes={"n1": NodeStatus("n1", "reporting")}, in_force=in_force, **fields,
    )  # fmt: skip


def running(name: str, gpu: int = 0) -> AssignedInstance:
    return AssignedInstance(f"i-{name}", gpu, tenant="lab", job=name, sm_percent=50, memory_gib=4.0)


# Order


def test_the_urgent_come_first_then_the_short() -> None:
    order = queue_jobs(
        snapshot(
            job("long"), job("short", 600), job("pressing", 3600, 0.2), job("soon", 3600, 0.3), job("later", 3600, 9)
        )
    ).order
    assert order == ("lab/pressing", "lab/soon", "lab/short", "lab/later", "lab/long")


def test_who_failed_before_comes_before_its_equals() -> None:
    facts = {"lab/b": JobProgress(attempts=2)}
    assert queue_jobs(snapshot(job("a"), job("b"), jobs=facts)).order == ("lab/b", "lab/a")


TASKS = st.builds(
    JobTask, st.text("abc", min_size=1, max_size=3), st.floats(1, 1e4),
    st.one_of(st.just(float("inf")), st.floats(0, 1e5)), st.integers(0, 3),
)  # fmt: skip


@pytest.mark.slow
@given(st.lists(TASKS, max_size=8))
def test_the_order_keeps_its_rules_for_any_queue(tasks: list[JobTask]) -> None:
    found = sort_tasks(tasks)
    assert sorted(map(repr, found)) == sorted(map(repr, tasks))
    assert found == sort_tasks(reversed(tasks)) or len({task.name for task in tasks}) < len(tasks)
    for before, after in pairwise(found):
        assert before.urgency <= after.urgency
        if (before.urgency, before.failed) == (after.urgency, after.failed):
            assert before.seconds <= after.seconds


def test_finished_and_failed_jobs_leave_the_queue() -> None:
    facts = {"lab/a": JobProgress("finished"), "lab/b": JobProgress("failed"), "lab/c": JobProgress("preempted", 100)}
    found = queue_jobs(snapshot(job("a"), job("b"), job("c"), jobs=facts))
    assert found.order == ("lab/c",)
    assert set(found.units_left) == {"lab/c"}


def test_remaining_work_is_rounded_so_that_a_steady_fleet_asks_the_same_question() -> None:
    declared = (job("a", 100_000, 5), job("b", 100_000))
    lefts = {
        tuple(
            queue_jobs(
                snapshot(*declared, jobs={"lab/a": JobProgress("running", done), "lab/b": JobProgress("running", done)})
            ).units_left.values()
        )
        for done in (1000.0, 1010.0, 1200.0, 1300.0)
    }
    assert len(lefts) == 1


def test_remaining_work_of_waiting_jobs_is_never_rounded_down() -> None:
    for done in range(0, 3600, 97):
        found = queue_jobs(snapshot(job("a", 3600, 5), jobs={"lab/a": JobProgress("preempted", float(done))}))
        assert 3600 - done <= found.units_left["lab/a"] * (1 + 1e-9) <= (3600 - done) * 1.03


# Which one gets the place


def placed(found: Snapshot) -> list[str]:
    queue = queue_jobs(found)
    problem = queue.weigh(pose(found, jobs=queue.units_left).problem)
    return [job.job for job in solve(problem, SolveBudget(seconds=None, work=1)).jobs]


def alone(name: str, **fields: Any) -> DeclaredObject:
    """One that fills the memory of a GPU."""
    declared = job(name, **fields)
    spec = dict(declared.spec)
    spec["profiles"] = {"big": {"stepsPerSecond": {"100": 10.0}, "memoryGib": 16}}
    return replace(declared, spec=spec)


def test_the_shortest_of_equals_gets_the_only_place() -> None:
    assert placed(snapshot(alone("a", steps=90_000), alone("b", steps=9_000), alone("c", steps=50_000))) == ["lab/b"]


def test_one_whose_deadline_can_wait_makes_way_for_one_whose_deadline_presses() -> None:
    waits, presses = alone("a", steps=36_000, hours=12, priority=200), alone("b", steps=36_000, hours=1.2)
    assert placed(snapshot(waits, presses)) == ["lab/b"]


def test_what_runs_stays_where_another_is_but_a_little_shorter() -> None:
    occupied = {"n1": NodeDesired((replace_memory(running("a")),))}
    assert placed(snapshot(alone("a", steps=10_000), alone("b", steps=9_000), in_force=occupied)) == ["lab/a"]
    assert RUNNING_WEIGHT_FACTOR > 1


def replace_memory(instance: AssignedInstance) -> AssignedInstance:
    return AssignedInstance(
        instance.id, instance.gpu, tenant=instance.tenant, job=instance.job, sm_percent=100, memory_gib=16.0
    )


@pytest.mark.parametrize("careless", ["a", "b"])
def test_of_two_that_run_the_one_that_loses_least_gives_way(careless: str) -> None:
    both = {"n1": NodeDesired((replace_memory(running("a")), replace_memory(running("b"))))}
    saved = {"a": 5_000.0, "b": 5_000.0, careless: 0.0}
    progress = {f"lab/{name}": JobProgress("running", 5_000.0, 5.0, saved=units) for name, units in saved.items()}
    found = snapshot(alone("a", steps=9_000), alone("b", steps=9_000), in_force=both, jobs=progress)
    assert placed(found) == [f"lab/{careless}"], "it would lose a thousand seconds of work"


def test_a_job_runs_only_where_its_template_is_offered() -> None:
    brought: dict[str, Any] = {"runtime": {"template": "trainer"}}
    assert placed(snapshot(job("a", **brought), job("b"))) == ["lab/a", "lab/b"], "nothing is known of templates yet"
    offered = {"n1": NodeStatus("n1", "reporting", templates=("gpuwright-train",))}
    assert placed(replace(snapshot(job("a", **brought), job("b")), nodes=offered)) == ["lab/b"]
    more = {"n1": NodeStatus("n1", "reporting", templates=("gpuwright-train", "trainer"))}
    assert placed(replace(snapshot(job("a", **brought), job("b")), nodes=more)) == ["lab/a", "lab/b"]


def test_a_job_that_cannot_meet_its_deadline_continues_as_if_it_had_none() -> None:
    found = snapshot(alone("a", steps=72_000, hours=1))
    assert queue_jobs(found).too_late == {"lab/a"}
    assert placed(found) == ["lab/a"]


# Feedback of failed placements


def state(name: str, **fields: Any) -> JobState:
    return replace(JobState(f"lab/{name}", JobPhase.QUEUED, NOON), **fields)


def after_failing(found: Snapshot, times: int, now: datetime = NOON) -> JobState:
    states = {"lab/a": state("a")}
    queue = queue_jobs(found)
    for _ in range(times):
        plan = Plan((), unplaced=(Unplaced("lab/a", "no GPU has 100 SM% free", "smPercent: 60"),))
        states = apply_answer(states, queue, plan, found.in_force, found, now)
    return states["lab/a"]


def test_one_that_found_no_place_rests_twice_as_long_each_time_and_its_need_is_kept() -> None:
    found = snapshot(job("a", hours=9), busy={0: 95})
    rests = [after_failing(found, times).need.retry_at for times in (1, 2, 3, 20)]
    assert rests == [NOON + FIRST_WAIT, NOON + 2 * FIRST_WAIT, NOON + 4 * FIRST_WAIT, NOON + LONGEST_WAIT]
    need = after_failing(found, 3).need
    assert (need.attempts, need.reason, need.relaxation) == (3, "no GPU has 100 SM% free", "smPercent: 60")
    assert need.room == {"big": 5}


def test_while_it_rests_it_is_not_asked_about_and_the_plan_says_why() -> None:
    busy = {0: 95.0}
    facts = after_failing(snapshot(job("a", hours=9), busy=busy), 3).facts
    resting = queue_jobs(snapshot(job("a", hours=9), busy=busy, jobs={"lab/a": facts}, at=NOON + FIRST_WAIT))
    assert resting.units_left == {}
    assert resting.add_resting(Plan(())).unplaced == (Unplaced("lab/a", "no GPU has 100 SM% free", "smPercent: 60"),)
    later = queue_jobs(snapshot(job("a", hours=9), busy=busy, jobs={"lab/a": facts}, at=NOON + 4 * FIRST_WAIT))
    assert set(later.units_left) == {"lab/a"}


def test_room_that_comes_free_ends_its_rest() -> None:
    facts = after_failing(snapshot(job("a"), busy={0: 95}), 3).facts
    found = queue_jobs(snapshot(job("a"), busy={0: 50}, jobs={"lab/a": facts}, at=NOON + FIRST_WAIT))
    assert set(found.units_left) == {"lab/a"}


def test_a_job_with_a_close_deadline_does_not_wait() -> None:
    facts = after_failing(snapshot(job("a", 36_000, 1.2), busy={0: 95}), 3).facts
    found = queue_jobs(snapshot(job("a", 36_000, 1.2), busy={0: 95}, jobs={"lab/a": facts}, at=NOON + FIRST_WAIT))
    assert set(found.units_left) == {"lab/a"}


def test_a_place_ends_all_that() -> None:
    found = snapshot(job("a"))
    before = {"lab/a": after_failing(found, 3)}
    plan = Plan((), jobs=(PlacedJob("lab/a", "n1", 0, 50, 4.0, 5.0),))
    follows = {"n1": NodeDesired((running("a"),))}
    after = apply_answer(before, queue_jobs(found), plan, follows, found, NOON)["lab/a"]
    assert (after.need.attempts, after.need.retry_at, after.planned_per_second) == (0, None, 5.0)


def test_a_plan_that_is_not_carried_out_changes_no_job() -> None:
    """It is advice, or its changes are held back: a waiting job waits as before, and a running one runs on."""
    found = snapshot(job("a"), job("b"), in_force={"n1": NodeDesired((running("b"),))})
    before = {"lab/a": after_failing(found, 3), "lab/b": state("b", phase=JobPhase.RUNNING)}
    plan = Plan((), jobs=(PlacedJob("lab/a", "n1", 0, 50, 4.0, 5.0),), unplaced=(Unplaced("lab/b", "no room", ""),))
    assert apply_answer(before, queue_jobs(found), plan, found.in_force, found, NOON) == before


def test_room_is_what_instances_leave_of_gpus_that_may_be_used() -> None:
    found = snapshot(gpus=3, busy={0: 30, 1: 80})
    assert free_capacity(found) == {"big": _free((70, 14.0), (20, 14.0), (100, 16.0))}
    out = replace(found, nodes={"n1": NodeStatus("n1", "reporting", failed_gpus=(2,), cordoned_gpus=(0,))})
    assert free_capacity(out) == {"big": _free((20, 14.0))}
    assert free_capacity(replace(found, nodes={"n1": NodeStatus("n1", "lost")})) == {}
    wide = AssignedInstance("w", 0, tenant="shop", service="chat", sm_percent=100, memory_gib=9.0, gpus=(0, 2))
    held = snapshot(gpus=3, in_force={"n1": NodeDesired((wide,))})
    assert free_capacity(held) == {"big": _free((0, 7.0), (100, 16.0), (0, 7.0))}


def _free(*gpus: tuple[int, float]) -> list[UnusedGpu]:
    return [UnusedGpu("n1", sm_percent, memory_gib) for sm_percent, memory_gib in gpus]


# The adaptive window


def test_jobs_that_arrive_together_are_one_question() -> None:
    window = GatheringWindow()
    for tick in range(10):
        window = window.arrived(tick * 0.004)
        assert not window.is_due(tick * 0.004)
    assert window.is_due(0.05)
    assert not window.planned(0, 5).is_due(99.0)


def test_a_full_batch_is_planned_at_once() -> None:
    assert GatheringWindow(1000.0).arrived(0.0, 100).is_due(0.0)


@pytest.mark.parametrize(
    ("critical", "jobs", "failed", "step"),
    [(8, 2, False, -10), (7, 3, False, 10), (0, 9, True, -10), (0, 0, False, 10)],
)
def test_the_window_follows_what_waits(critical: int, jobs: int, failed: bool, step: float) -> None:
    assert GatheringWindow(500.0).planned(critical, jobs, failed).width_ms == 500.0 + step


def test_the_window_stays_between_its_limits() -> None:
    narrow, wide = GatheringWindow(), GatheringWindow()
    for _ in range(300):
        narrow, wide = narrow.planned(9, 1), wide.planned(1, 9)
    assert (narrow.width_ms, wide.width_ms) == (50.0, 1000.0)


def test_changed_jobs_and_other_changes_are_counted_separately() -> None:
    a, b = job("a"), job("b")
    service = DeclaredObject("Service", "shop", "search", {"model": "m"})
    assert count_arrivals((a,), (a,)) == Arrivals()
    assert count_arrivals((a,), (b,)) == Arrivals(jobs=2)
    assert count_arrivals((a, service), (job("a", 9), replace(service, spec={"model": "k"}))) == Arrivals(1, 1)
