"""Explains a job: where and how fast it runs, or why it waits and what would let it run."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from app.control.answer.explain.wording import money
from app.control.domain.snapshot import JobProgress
from solvers.planning.judge.billing import is_billed_whole, price_of_used
from solvers.planning.judge.readings import value_at
from solvers.planning.plan import Plan
from solvers.planning.problem import Job, PlacedJob, Problem


@dataclass(frozen=True, slots=True)
class JobWhy:
    """The explanation of a job: why it runs where it does, or waits."""

    name: str
    placed: PlacedJob | None
    gpu_type: str
    remaining_units: float  # steps or requests
    ends_at: datetime | None
    reason: str
    relaxation: str
    sentences: tuple[str, ...]


NO_FACTS = JobProgress()


def why_job(problem: Problem, plan: Plan, name: str, now: datetime, facts: JobProgress = NO_FACTS) -> JobWhy:
    """Explains a job of a plan. One that rests after a failed attempt is in no problem; its facts say why."""
    job = problem.jobs.get(name)
    if job is None:
        if facts.reason:
            return _resting(name, facts.reason, facts.relaxation, swapped_on=facts.swapped_on)
        reason = "it is finished" if facts.phase == "finished" else f"it is {facts.phase}"
        return JobWhy(name, None, "", 0.0, None, reason, "", (f"{name} is not in this plan: {reason}",))
    placed = next((line for line in plan.jobs if line.job == name), None)
    return _explain_placed(problem, plan, job, placed, now, facts) if placed else _waiting(plan, job, facts.swapped_on)


def _explain_placed(
    problem: Problem, plan: Plan, job: Job, placed: PlacedJob, now: datetime, facts: JobProgress
) -> JobWhy:  # fmt: skip
    node = problem.nodes[placed.node]
    units = "steps" if job.kind == "training" else "requests"
    speed = placed.units_per_second
    ends = now + timedelta(seconds=job.units / speed) if speed > 0 and job.units / speed < 1e9 else None
    where = f"{placed.node}/{','.join(str(gpu) for _, gpu in placed.places)} ({node.gpu_type})"
    share = f"whole GPUs, {placed.degree} of them" if placed.gpus else f"{placed.sm_percent} % of the SMs"
    runs = "runs" if facts.phase == "running" else f"is {facts.phase}, and is to run"
    head = f"{job.name} {runs} on {where}, {share}, at {speed:.4g} {units} a second; {job.units:,.0f} are left"
    sentences = [
        f"{head}, to be done about {ends:%Y-%m-%d %H:%M} UTC" if ends else head,
        _why_there(problem, plan, placed),
    ]
    if job.deadline and ends:
        spare = (job.deadline - ends).total_seconds()
        sentences.append(
            f"it meets its deadline with {spare / 3600:.1f} hours to spare"
            if spare >= 0
            else f"it misses its deadline by {-spare / 3600:.1f} hours"
        )
    sentences.append(_elsewhere(problem, job, node.gpu_type, units))
    reason = sentences[1]
    return JobWhy(
        job.name, placed, node.gpu_type, job.units, ends, reason, "", tuple(line for line in sentences if line)
    )


def _why_there(problem: Problem, plan: Plan, placed: PlacedJob) -> str:
    node = problem.nodes[placed.node]
    is_whole = is_billed_whole(node, problem.policy)
    paying = [line for line in plan.instances if line.place in placed.places or (is_whole and line.node == node.name)]
    services = sorted({instance.service for instance in paying})
    if services:
        return f"why this GPU: {', '.join(services)} pay for it, so the job costs nothing there"
    if node.is_paid_anyway:
        why = "its node has a service that stays there" if node.pricing == "paid" else f"it is {node.purchase}"
        return f"why this GPU: {why} and paid for anyway"
    what = "its node was empty and is billed whole" if is_whole else "it was empty"
    price = price_of_used(node, problem.policy, placed.degree)
    return f"why this GPU: {what} and is used for the job, at {money(price)} an hour"


def _elsewhere(problem: Problem, job: Job, here: str, units: str) -> str:
    """Returns how fast a whole GPU of each other type would be."""
    there = {node.gpu_type for node in problem.nodes.values()}
    parts = [
        f"{name} {value_at(profile.units_per_second, 100):.4g}"
        for name, profile in sorted(job.profiles.items())
        if name != here and name in there
    ]
    return f"a whole GPU of another type would reach, in {units} a second: {', '.join(parts)}" if parts else ""


def _waiting(plan: Plan, job: Job, swapped_on: str) -> JobWhy:
    unplaced = next((line for line in plan.unplaced if line.job == job.name), None)
    reason = (unplaced.reason if unplaced else "") or ("the services leave no room, and no empty GPU is used for it")
    return _resting(job.name, reason, unplaced.relaxation if unplaced else "", job.units, swapped_on)


def _resting(name: str, reason: str, relaxation: str, units: float = 0.0, swapped_on: str = "") -> JobWhy:
    sentences = [f"{name} waits: {reason}"]
    if swapped_on:
        sentences.append(f"its process waits in the host memory of {swapped_on}, and can go on there without a start")
    if relaxation:
        sentences.append(f"least change that helps: {relaxation}")
    return JobWhy(name, None, "", units, None, reason, relaxation, tuple(sentences))
