"""Places jobs next to services: least jobCost, then least sum of seconds a unit, and every SLO is kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from solvers.latency import latency_at, timeout_for
from solvers.planning.beside import narrow_problem, wide_of
from solvers.planning.jobs import exact, explain, search
from solvers.planning.jobs.placement import JobPlacement, less
from solvers.planning.jobs.room import room
from solvers.planning.jobs.wide import leave_out_wide_seats, seat_wide_jobs, wide_jobs
from solvers.planning.judge.plan_lines import gpus_with
from solvers.planning.judge.readings import slow_down
from solvers.planning.plan import Unplaced
from solvers.planning.problem import Instance, PlacedJob, Problem

__all__ = ["JobPlan", "place_jobs"]

SPLITS_AT_SCALE = 101  # one job's SM% are all tried; several share step by step
SPLITS_WHEN_SMALL = 10_201  # two jobs', too


@dataclass(frozen=True, slots=True)
class JobPlan:
    """Jobs with their places, instances with their predictions among them, and the jobs left out with the reason."""

    jobs: tuple[PlacedJob, ...]
    unplaced: tuple[Unplaced, ...]
    instances: tuple[Instance, ...]
    job_cost: float
    method: str


def place_jobs(problem: Problem, instances: Sequence[Instance], work: int = 30_000) -> JobPlan:
    """Places jobs on what a valid plan of services leaves. `work` counts GPUs; at 0 each job is placed once."""
    if not problem.jobs:
        return JobPlan((), (), tuple(instances), 0.0, "no jobs")
    if wide := wide_of(problem, instances):
        return _place_beside_models(problem, instances, wide, work)
    if wide_jobs(problem):
        return _place_wide_first(problem, instances, work)
    left = room(problem, instances)
    placement = JobPlacement(left, SPLITS_AT_SCALE)
    search.search(placement, work)
    method = "jobs: greedy, improved"
    if work > 0 and exact.is_small(placement):
        small = JobPlacement(left, SPLITS_WHEN_SMALL)
        search.place_staying(small)
        exact.search(small)
        small.work += placement.work
        if not less(placement.value, small.value):
            placement, method = small, "jobs: every placement"
    if problem.policy.power_budget_w is not None:
        placement.spend()
    placed = _placed(placement)
    places = {job.place for job in (*placed, *(problem.state.jobs if problem.state else ()))}
    gpus = gpus_with(problem, [instance for instance in instances if instance.place in places], placed)
    for gpu in gpus.values():
        slow_down(gpu, problem.policy)
    exec_ms = {id(line.instance): line.exec_ms or 0.0 for gpu in gpus.values() for line in gpu.residents}
    others = tuple(
        _predicted(problem, instance, exec_ms[id(instance)]) if instance.place in places else instance
        for instance in instances
    )
    return JobPlan(placed, explain.unplaced(placement), others, max(0.0, placement.cost), method)


def _place_beside_models(
    problem: Problem, instances: Sequence[Instance], wide: Sequence[Instance], work: int
) -> JobPlan:
    """Places jobs on the GPUs that language models leave."""
    models = {line.service for line in wide}
    found = place_jobs(narrow_problem(problem, wide), [line for line in instances if line.service not in models], work)
    order = tuple(sorted([*found.instances, *wide], key=lambda line: line.place))
    return replace(found, instances=order)


def _place_wide_first(problem: Problem, instances: Sequence[Instance], work: int) -> JobPlan:
    """Places jobs on several GPUs first, and all others on the GPUs that they leave."""
    seats = seat_wide_jobs(problem, instances)
    found = place_jobs(leave_out_wide_seats(problem, seats.placed), instances, work)
    return replace(
        found,
        jobs=tuple(sorted([*found.jobs, *seats.placed], key=lambda placed: placed.job)),
        unplaced=(*seats.unplaced, *found.unplaced),
        job_cost=found.job_cost + seats.cost,
        method=f"{found.method}; {len(seats.placed)} on several GPUs",
    )


def _placed(s: JobPlacement) -> tuple[PlacedJob, ...]:
    """Returns the placed jobs by name."""
    found = []
    for job, gpu in enumerate(s.board.home):
        if gpu >= 0:
            node, index = s.room.places[gpu]
            sm = next(int(s.board.sm[gpu, seat]) for seat, other in enumerate(s.on(int(gpu))) if other == job)
            memory_gib = float(s.room.work.memory_gib[s.room.work.profile[job, s.room.fleet.kind[gpu]]])
            found.append(PlacedJob(s.room.jobs[job].name, node, index, sm, memory_gib, explain.pace(s, job)))
    return tuple(found)


def _predicted(problem: Problem, instance: Instance, exec_ms: float) -> Instance:
    """Updates the predictions of an instance among jobs; its timeout only where the old one breaks its SLO."""
    service, rate = problem.services[instance.service], instance.rate_per_second
    judged_ms = exec_ms * (1 + problem.policy.exec_margin)
    shape = (instance.batch, judged_ms)
    timeout_ms = min(instance.batch_timeout_ms, judged_ms)
    latency_ms = latency_at(*shape, rate, service.percentile, timeout_ms, service.variation)
    if latency_ms > service.slo_ms:
        other = timeout_for(*shape, service.slo_ms, service.percentile, rate, service.variation)
        timeout_ms = timeout_ms if other is None else other
        latency_ms = latency_at(*shape, rate, service.percentile, timeout_ms, service.variation)
    return replace(instance, batch_timeout_ms=timeout_ms, exec_ms=exec_ms, latency_ms=latency_ms)
