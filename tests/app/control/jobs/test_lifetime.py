"""A job next to a service: queued, placed, displaced by a spike, resumed, finished; each step once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

import pytest

from agents.contract.assignments import AssignedInstance
from app.control.domain.desired import NodeDesired
from app.control.domain.events import Reason
from app.control.domain.readings import JobReading
from app.control.domain.snapshot import DeclaredObject, NodeStatus, Snapshot
from app.control.fast import CapacityNeed, StepKind, StepTrigger
from app.control.jobs.life import advance_jobs
from app.control.jobs.queue import apply_answer, queue_jobs
from app.control.jobs.state import JobPhase, JobPlace, JobState, read_declared_work
from app.control.solve.inline import Inline
from solvers.planning.plan import Plan
from solvers.planning.problem import (
    Demand,
    GpuType,
    Job,
    JobProfile,
    Node,
    Problem,
    Profile,
    RunningState,
    Service,
    Variant,
)
from tests.app.control.fast.quick_steps import quick_step

NOON = datetime(2026, 12, 1, 12, tzinfo=UTC)
J, S = "lab/tune", "shop/search"
STEPS, TICK, SAVES_EVERY = 3_000, 5.0, 30.0
SPEEDS = {"20": 1.0, "60": 3.0}
JOB = DeclaredObject(
    "Job", "lab", "tune",
    {"type": "training", "steps": STEPS, "profiles": {"big": {"stepsPerSecond": SPEEDS, "memoryGib": 4}}},
)  # fmt: skip
GPU_TYPE = DeclaredObject(
    "GpuType", "", "big",
    {"memoryGib": 16, "smCount": 80, "pricePerHour": 2, "idleW": 40, "maxW": 300, "clocksMhz": [1200]},
)  # fmt: skip
NODE = DeclaredObject(
    "Node", "", "n1", {"gpuType": "big", "gpus": 1, "cpuCores": 64, "memoryGib": 256, "purchase": "owned"}
)
# One batch of 1 only: 20 ms at 20 SM%, 8 ms at 80.
EXEC = {1: ((20, 20.0), (80, 8.0))}


def question(rate: float, state: RunningState) -> Problem:
    return Problem(
        gpu_types={"big": GpuType("big", 16, 40, 300, (1200.0,))},
        nodes={"n1": Node("n1", "big", (0,), 64, 256, 2.0, purchase="owned")},
        models={"m": (Variant("v", 0.8),)},
        profiles={("m", "v", "big"): Profile("m", "v", "big", EXEC, {1: 1.0})},
        services={S: Service(S, "shop", "m", ("v",), 100.0, 95.0, rate)},
        jobs={
            J: Job(J, "lab", "training", STEPS, {"big": JobProfile(((20, 1.0), (60, 3.0)), 4.0, Demand(cpu_cores=1))})
        },
        state=state,
    )


@dataclass
class Process:
    """The job as it really runs: it saves now and then, and when it is asked to end."""

    made: float = 0.0  # steps in all, those done twice counted twice
    position: float = 0.0
    saved: float = 0.0
    place: JobPlace | None = None
    per_second: float = 0.0
    order: int = 0

    def assign_place(self, place: JobPlace | None, per_second: float) -> None:
        if place != self.place:
            self.saved = self.position  # asked to end, it saves
            self.place, self.position = place, self.saved
        self.per_second = per_second

    def killed(self) -> None:
        self.position = self.saved

    def lived(self, seconds: float, now: float) -> None:
        if self.place:
            step = min(self.per_second * seconds, STEPS - self.position)
            self.made, self.position = self.made + step, self.position + step
            if now % SAVES_EVERY < TICK:
                self.saved = self.position

    def says(self, now: datetime) -> list[JobReading]:
        if not self.place:
            return []
        self.order += 1
        return [JobReading(J, self.place.instance, self.place.node, self.order, now, self.position, "ready")]


@dataclass
class Fleet:
    """A planner and a node, as far as this job is concerned."""

    process: Process = field(default_factory=Process)
    states: Mapping[str, JobState] = field(default_factory=dict)
    plan: Plan = field(default_factory=lambda: Plan(()))
    rate: float = 20.0
    now: float = 0.0
    events: list[str] = field(default_factory=list)
    history: list[tuple[JobPhase, float, float]] = field(default_factory=list)  # phase, counted, true
    copies: int = 0

    @property
    def at(self) -> datetime:
        return NOON + timedelta(seconds=self.now)

    def cycle(self) -> None:
        """A whole cycle: jobs run on the GPUs that services leave free."""
        known = Snapshot(
            self.at, 1, (GPU_TYPE, NODE, JOB), {"n1": NodeStatus("n1", "reporting")}, self.in_force(),
            jobs={name: state.facts for name, state in self.states.items()},
        )  # fmt: skip
        queue = queue_jobs(known)
        ran = tuple(job for job in self.plan.jobs if job.job in queue.units_left)
        problem = question(self.rate, RunningState(self.at, self.plan.instances, self.plan.jobs))
        jobs = {name: problem.jobs[name] for name in queue.units_left}
        problem = queue.weigh(replace(problem, jobs=jobs, state=RunningState(self.at, self.plan.instances, ran)))
        answer = Inline().solve(problem, seconds=1, work=1)
        assert answer.plan
        self.take(answer.plan)
        self.states = apply_answer(self.states, queue, answer.plan, self.in_force(), known, self.at)

    def spike(self, rate: float) -> None:
        """The fast lane, called."""
        problem = question(self.rate, RunningState(self.at, self.plan.instances, self.plan.jobs))
        quick = quick_step(
            problem, self.plan, [CapacityNeed(S, StepTrigger.LOAD_ROSE, rate, rate, "it rose")], Inline()
        )
        assert quick
        assert quick.rung is StepKind.RESIZE
        assert [job.job for job in quick.plan.unplaced] == [J]
        self.rate = quick.rates[S]
        self.take(quick.plan)

    def take(self, plan: Plan) -> None:
        before = self.process.place
        self.plan = plan
        found = plan.jobs[0] if plan.jobs else None
        if found is None:
            self.process.assign_place(None, 0.0)
        elif before and before.sm_percent == found.sm_percent:
            self.process.assign_place(before, found.units_per_second)
        else:
            self.copies += 1
            place = JobPlace(f"tune-{self.copies}", found.node, (found.gpu,), found.sm_percent)
            self.process.assign_place(place, found.units_per_second)

    def in_force(self) -> dict[str, NodeDesired]:
        jobs = [
            AssignedInstance("t", job.gpu, tenant="lab", job="tune", sm_percent=job.sm_percent, memory_gib=4.0)
            for job in self.plan.jobs
        ]
        services = [
            AssignedInstance(
                instance.id,
                instance.gpu,
                tenant="shop",
                service="search",
                sm_percent=instance.sm_percent,
                memory_gib=1.0,
            )
            for instance in self.plan.instances
        ]
        return {"n1": NodeDesired((*services, *jobs))}

    def run(self, seconds: float, is_received: bool = True) -> None:
        for _ in range(round(seconds / TICK)):
            self.now += TICK
            self.process.lived(TICK, self.now)
            reported: Sequence[JobReading] = self.process.says(self.at)
            place: dict[str, JobPlace] = {J: self.process.place} if self.process.place else {}
            found = advance_jobs(
                self.states, read_declared_work((JOB,)), place, reported if is_received else (), self.at
            )
            self.states = found.states
            self.events += [event.reason for event in found.events]
            state = self.states[J]
            self.history.append((state.phase, state.done, self.process.position))

    @property
    def state(self) -> JobState:
        return self.states[J]

    def is_in(self, phase: JobPhase) -> bool:
        return self.state.phase is phase


def begun() -> Fleet:
    fleet = Fleet()
    fleet.run(TICK)
    assert fleet.is_in(JobPhase.QUEUED)
    fleet.cycle()
    fleet.run(100)
    assert fleet.is_in(JobPhase.RUNNING)
    assert fleet.state.done > 0
    return fleet


def test_a_job_is_pushed_aside_by_a_spike_and_finishes_with_every_step_made_once() -> None:
    fleet = begun()
    fleet.spike(95.0)
    fleet.run(60)
    assert fleet.is_in(JobPhase.PREEMPTED)
    at_rest = fleet.state.done
    fleet.rate = 20.0
    fleet.cycle()
    fleet.run(30)
    assert fleet.is_in(JobPhase.RUNNING)
    assert fleet.state.done > at_rest
    fleet.run(4_000)
    assert fleet.is_in(JobPhase.FINISHED)
    assert (fleet.state.done, fleet.state.repeated, fleet.state.preemptions) == (STEPS, 0, 1)
    assert fleet.process.made == pytest.approx(STEPS)
    assert fleet.events == [
        Reason.JOB_QUEUED, Reason.JOB_PLACED, Reason.JOB_STARTED, Reason.JOB_PREEMPTED, Reason.JOB_PLACED,
        Reason.JOB_RESUMED, Reason.JOB_FINISHED,
    ]  # fmt: skip
    counted = [done for _, done, _ in fleet.history]
    assert counted == sorted(counted)
    assert all(done <= true or phase is JobPhase.FINISHED for phase, done, true in fleet.history)


def test_steps_that_were_not_saved_are_done_again_and_not_counted_twice() -> None:
    fleet = begun()
    before = fleet.process.position
    fleet.process.killed()
    lost = before - fleet.process.saved
    assert lost > 0
    fleet.run(4_000)
    assert fleet.is_in(JobPhase.FINISHED)
    assert fleet.process.made == pytest.approx(STEPS + lost)
    assert 0 < fleet.state.repeated <= lost


def test_while_its_node_is_silent_the_count_stops_and_then_catches_up() -> None:
    fleet = begun()
    before = fleet.state.done
    fleet.run(100, is_received=False)
    assert fleet.state.done == before
    fleet.run(TICK)
    assert fleet.state.done == fleet.process.position


def test_a_finished_job_leaves_the_problem_and_its_place() -> None:
    fleet = begun()
    fleet.run(4_000)
    assert fleet.is_in(JobPhase.FINISHED)
    fleet.cycle()
    assert fleet.plan.jobs == ()
    fleet.run(20)
    assert fleet.is_in(JobPhase.FINISHED)
