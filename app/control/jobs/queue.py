"""Which jobs go into the problem, with what is left of each and how much each weighs; who rests, and why.

A job that nothing could finish in time any more is late, and said to be; it goes on where that costs nothing. One that
found no place rests, twice as long each time, unless its deadline presses, or room has come free since that
was not there when it failed. What it needs is remembered, so that explaining it costs nothing while it rests.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from math import ceil, floor, inf, log

from app.control.domain.snapshot import JobProgress, Snapshot
from app.control.jobs.order import JobTask, sort_tasks
from app.control.jobs.room import free_capacity, widest_free
from app.control.jobs.state import JobNeed, JobState, JobWork, declared_work
from solvers.planning.plan import Plan, Unplaced
from solvers.planning.problem import Problem

REST = timedelta(seconds=30)
MOST_REST = timedelta(minutes=10)
PRESSING = 1.5  # times the time it needs: it does not rest
MAY_WAIT = 1.25  # beyond it a deadline weighs less: there will be another time to meet it
LEAST_WEIGHT = 0.1
RATIO_STEPS = 4
STAYS = 1.5  # what runs weighs more than what would take its place
FAILED_BEFORE, MOST_FAILED = 0.1, 10  # more for each time
TIE = 1e-4  # between equals by their order: prices hardly feel it
STEP = 1.02  # what is left is told in such steps: a steady fleet asks the same question again


@dataclass(frozen=True, slots=True)
class JobQueue:
    """The throughput-oriented queue at one moment."""

    left: Mapping[str, float] = field(default_factory=dict)  # of jobs that go into the problem
    order: tuple[str, ...] = ()  # of all that are not over
    weights: Mapping[str, float] = field(default_factory=dict)  # in place of their priorities
    resting: tuple[Unplaced, ...] = ()  # and not asked about
    too_late: frozenset[str] = frozenset()  # no place would meet their deadline: they go on as if they had none

    def weigh(self, problem: Problem) -> Problem:
        """The problem with each job at its weight: the solver leaves the least out."""
        if not problem.jobs:
            return problem
        jobs = {
            name: replace(
                job,
                priority=self.weights.get(name, job.priority),
                deadline=None if name in self.too_late else job.deadline,
            )
            for name, job in problem.jobs.items()
        }
        return replace(problem, jobs=jobs)

    def add_resting(self, plan: Plan) -> Plan:
        """The plan with those that rest among its unplaced jobs."""
        if not self.resting:
            return plan
        known = {one.job for one in plan.unplaced} | {one.job for one in plan.jobs}
        more = [one for one in self.resting if one.job not in known]
        return replace(plan, unplaced=tuple(sorted([*plan.unplaced, *more], key=lambda one: one.job)))


def queue_jobs(snapshot: Snapshot) -> JobQueue:
    """Jobs that are not over, in order."""
    known = declared_work(snapshot.declared)
    if not known:
        return JobQueue()
    room = free_capacity(snapshot)
    running = {one.owner for wanted in snapshot.in_force.values() for one in wanted.instances if one.job}
    facts = {name: snapshot.jobs.get(name, JobProgress()) for name in known}
    open_ = {name: work for name, work in known.items() if facts[name].phase not in ("finished", "failed")}
    tasks = sort_tasks(_task(work, facts[name], snapshot.at) for name, work in open_.items())
    too_late = frozenset(task.name for task in tasks if task.seconds > task.left_seconds)
    left, weights, resting = {}, {}, []
    for rank, task in enumerate(tasks):
        work, fact = open_[task.name], facts[task.name]
        if task.name not in running and _rests(task, fact, work, room, snapshot.at):
            if work.deadline is not None:
                resting.append(Unplaced(task.name, fact.reason, fact.relaxation))
            continue
        left[task.name] = _left(work, fact, task.name in running)
        weights[task.name] = _weight(task, work, task.name in running) * (1 + TIE * (1 - rank / len(tasks)))
    return JobQueue(left, tuple(task.name for task in tasks), weights, tuple(resting), too_late)


def apply_answer(
    states: Mapping[str, JobState], asked: JobQueue, plan: Plan, snapshot: Snapshot, now: datetime
) -> dict[str, JobState]:
    """What the plan means for the queue: who got a place at which pace, who did not and rests (OLTunes' feedback)."""
    placed = {one.job: one for one in plan.jobs}
    unplaced = {one.job: one for one in plan.unplaced}
    room, known = free_capacity(snapshot), declared_work(snapshot.declared)
    found = dict(states)
    for name in asked.left:
        state = states.get(name)
        if state is None or name not in known:
            continue
        if name in placed:
            found[name] = replace(state, need=JobNeed(), planned_per_second=placed[name].units_per_second)
            continue
        said = unplaced.get(name, Unplaced(name, "nothing that costs it nothing is free", ""))
        attempts = state.need.attempts + 1
        rest = min(REST * 2 ** min(attempts - 1, 10), MOST_REST)
        need = JobNeed(said.reason, said.relaxation, attempts, now + rest, widest_free(room, known[name]))
        found[name] = replace(state, need=need)
    return found


def _left(work: JobWork, fact: JobProgress, runs: bool) -> float:
    """Units to do. Where there is no deadline nothing depends on them, and they stay what they were declared.

    What runs is given the benefit of the doubt: for a step too many it shall not lose its place.
    """
    if work.deadline is None:
        return work.units
    units = max(1.0, work.units - fact.done)
    steps = log(units) / log(STEP)
    return float(STEP ** (floor(steps + 1e-9) if runs else ceil(steps - 1e-9)))


def _task(work: JobWork, fact: JobProgress, now: datetime) -> JobTask:
    seconds = (work.units - fact.done) / work.fastest_per_second if work.fastest_per_second > 0 else inf
    left = inf if work.deadline is None else (work.deadline - now).total_seconds()
    return JobTask(work.job, max(seconds, 0.0), left, fact.attempts)


def _rests(
    task: JobTask, fact: JobProgress, work: JobWork, room: Mapping[str, list[tuple[int, float]]], now: datetime
) -> bool:
    if fact.retry_at is None or now >= fact.retry_at or 0 < task.left_seconds <= PRESSING * task.seconds:
        return False
    return all(sm <= fact.room.get(kind, 0) for kind, sm in widest_free(room, work).items())


def _weight(task: JobTask, work: JobWork, runs: bool) -> float:
    weight = work.priority * (1 + FAILED_BEFORE * min(task.failed, MOST_FAILED))
    if task.left_seconds < inf and task.seconds > 0:
        ratio = round(max(0.0, task.left_seconds) / task.seconds * RATIO_STEPS) / RATIO_STEPS
        weight *= max(LEAST_WEIGHT, min(1.0, MAY_WAIT / max(ratio, 1e-9)))
    return weight * (STAYS if runs else 1.0)
