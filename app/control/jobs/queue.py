"""Chooses the jobs that go into the problem, with the remaining work and the weight of each, and those that wait.

A job that cannot meet its deadline any more is late; it continues where that costs nothing. A job that found no place
waits before the next attempt, twice as long each time, unless its deadline is close or room has become free since. What
it needs is stored, so that it can be explained at no cost while it waits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from math import ceil, floor, inf, log

from app.control.domain.desired import Desired
from app.control.domain.snapshot import JobProgress, Snapshot
from app.control.jobs.order import JobTask, sort_tasks
from app.control.jobs.room import UnusedGpu, free_capacity, widest_free
from app.control.jobs.state import JobNeed, JobState, JobWork, read_declared_work
from solvers.planning.plan import Plan, Unplaced
from solvers.planning.problem import Problem

FIRST_WAIT = timedelta(seconds=30)
LONGEST_WAIT = timedelta(minutes=10)
URGENT_RATIO = 1.5  # of remaining to needed time: a job below it does not wait
PATIENT_RATIO = 1.25  # of remaining to needed time: above it a job weighs less, for it can be placed later
LEAST_WEIGHT_FACTOR = 0.1
RATIO_STEPS_PER_UNIT = 4
RUNNING_WEIGHT_FACTOR = 1.5  # a running job weighs more than a job that would replace it
LOSS_SECONDS = (60.0, 300.0, 1800.0)  # of unsaved work: in coarse steps, so that a steady fleet asks the same question
WEIGHT_PER_LOSS_STEP = 0.05  # of those that could give way, the job that would lose least weighs least
WEIGHT_PER_FAILED_ATTEMPT = 0.1
MOST_WEIGHED_ATTEMPTS = 10
TIE_BREAK_SHARE = 1e-4  # of a weight, between equals by their order: small compared with any price
WORK_STEP_FACTOR = 1.02  # remaining work is rounded to such steps, so that a steady fleet asks the same question


@dataclass(frozen=True, slots=True)
class JobQueue:
    """The queue of jobs at one moment."""

    units_left: Mapping[str, float] = field(default_factory=dict)  # of jobs that go into the problem
    order: tuple[str, ...] = ()  # of all unfinished jobs
    weights: Mapping[str, float] = field(default_factory=dict)  # replace the jobs' priorities
    resting: tuple[Unplaced, ...] = ()  # jobs that wait for their next attempt
    too_late: frozenset[str] = frozenset()  # no place could finish them in time: planned as if without deadline

    def weigh(self, problem: Problem) -> Problem:
        """Returns the problem with the jobs' weights: the solver leaves out the least important."""
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
        """Returns the plan with the waiting jobs among its unplaced jobs."""
        if not self.resting:
            return plan
        known = {unplaced.job for unplaced in plan.unplaced} | {placed.job for placed in plan.jobs}
        more = [unplaced for unplaced in self.resting if unplaced.job not in known]
        return replace(plan, unplaced=tuple(sorted([*plan.unplaced, *more], key=lambda unplaced: unplaced.job)))


def queue_jobs(snapshot: Snapshot) -> JobQueue:
    """Returns the queue of the unfinished jobs, in order."""
    known = read_declared_work(snapshot.declared)
    if not known:
        return JobQueue()
    room = free_capacity(snapshot)
    running = {instance.owner for wanted in snapshot.in_force.values() for instance in wanted.instances if instance.job}
    facts = {name: snapshot.jobs.get(name, JobProgress()) for name in known}
    open_ = {name: work for name, work in known.items() if facts[name].phase not in ("finished", "failed")}
    tasks = sort_tasks(_task(work, facts[name], snapshot.at) for name, work in open_.items())
    too_late = frozenset(task.name for task in tasks if task.seconds > task.left_seconds)
    units_left, weights, resting = {}, {}, []
    for rank, task in enumerate(tasks):
        work, fact = open_[task.name], facts[task.name]
        if task.name not in running and _rests(task, fact, work, room, snapshot.at):
            if work.deadline is not None:
                resting.append(Unplaced(task.name, fact.reason, fact.relaxation))
            continue
        units_left[task.name] = _units_left(work, fact, task.name in running)
        tie_break = 1 + TIE_BREAK_SHARE * (1 - rank / len(tasks))
        weights[task.name] = _weight(task, work, fact, task.name in running) * tie_break
    return JobQueue(units_left, tuple(task.name for task in tasks), weights, tuple(resting), too_late)


def apply_answer(
    states: Mapping[str, JobState], queue: JobQueue, plan: Plan, follows: Desired, snapshot: Snapshot, now: datetime
) -> dict[str, JobState]:
    """Returns the job states after a plan: which jobs got a place, and which wait for another attempt (OLTunes'
    feedback).

    A place that is not in what follows changes nothing, nor does a lack of one where the job runs on.
    """
    running = {line.owner for wanted in follows.values() for line in wanted.instances if line.job}
    placed = {line.job: line for line in plan.jobs}
    unplaced = {line.job: line for line in plan.unplaced}
    room, known = free_capacity(snapshot), read_declared_work(snapshot.declared)
    found = dict(states)
    for name in queue.units_left:
        state = states.get(name)
        if state is None or name not in known:
            continue
        if (name in placed) != (name in running):
            continue
        if name in placed:
            found[name] = replace(state, need=JobNeed(), planned_per_second=placed[name].units_per_second)
            continue
        why = unplaced.get(name, Unplaced(name, "no capacity is free at no cost", ""))
        attempts = state.need.attempts + 1
        wait = min(FIRST_WAIT * 2 ** min(attempts - 1, 10), LONGEST_WAIT)
        need = JobNeed(why.reason, why.relaxation, attempts, now + wait, widest_free(room, known[name]))
        found[name] = replace(state, need=need)
    return found


def _units_left(work: JobWork, fact: JobProgress, runs: bool) -> float:
    """Returns the remaining units, in coarse steps. Without a deadline nothing depends on them: the declared units do.

    For a running job they are rounded down, so that rounding does not cost it its place.
    """
    if work.deadline is None:
        return work.units
    units = max(1.0, work.units - fact.done)
    steps = log(units) / log(WORK_STEP_FACTOR)
    return float(WORK_STEP_FACTOR ** (floor(steps + 1e-9) if runs else ceil(steps - 1e-9)))


def _task(work: JobWork, fact: JobProgress, now: datetime) -> JobTask:
    seconds = (work.units - fact.done) / work.fastest_per_second if work.fastest_per_second > 0 else inf
    left_seconds = inf if work.deadline is None else (work.deadline - now).total_seconds()
    return JobTask(work.job, max(seconds, 0.0), left_seconds, fact.attempts)


def _rests(task: JobTask, fact: JobProgress, work: JobWork, room: Mapping[str, list[UnusedGpu]], now: datetime) -> bool:
    if fact.retry_at is None or now >= fact.retry_at or 0 < task.left_seconds <= URGENT_RATIO * task.seconds:
        return False
    return all(sm <= fact.room.get(kind, 0) for kind, sm in widest_free(room, work).items())


def _weight(task: JobTask, work: JobWork, fact: JobProgress, runs: bool) -> float:
    weight = work.priority * (1 + WEIGHT_PER_FAILED_ATTEMPT * min(task.failed, MOST_WEIGHED_ATTEMPTS))
    if task.left_seconds < inf and task.seconds > 0:
        ratio = round(max(0.0, task.left_seconds) / task.seconds * RATIO_STEPS_PER_UNIT) / RATIO_STEPS_PER_UNIT
        weight *= max(LEAST_WEIGHT_FACTOR, min(1.0, PATIENT_RATIO / max(ratio, 1e-9)))
    return weight * (RUNNING_WEIGHT_FACTOR * _loss_factor(fact) if runs else 1.0)


def _loss_factor(fact: JobProgress) -> float:
    """Returns how much more a running job weighs for the work that it has not saved."""
    seconds = max(0.0, fact.done - fact.saved) / fact.per_second if fact.per_second > 0 else 0.0
    return 1 + WEIGHT_PER_LOSS_STEP * sum(seconds >= step for step in LOSS_SECONDS)
