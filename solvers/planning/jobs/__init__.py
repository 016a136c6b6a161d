"""Jobs beside a plan of services: least jobCost, then least sum of seconds a unit, and no service's SLO touched."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from solvers.latency import latency_at, timeout_for
from solvers.planning.jobs import exact, explain, search
from solvers.planning.jobs.placement import JobPlacement, less
from solvers.planning.jobs.residents import at
from solvers.planning.jobs.room import Room, room
from solvers.planning.plan import Unplaced
from solvers.planning.problem import Instance, PlacedJob, Problem

__all__ = ["JobPlan", "place_jobs"]

SPLITS_AT_SCALE = 101  # one job's SM% are all tried; several share step by step
SPLITS_WHEN_SMALL = 10_201  # two jobs', too


@dataclass(frozen=True, slots=True)
class JobPlan:
    """Jobs with their places; instances as they predict beside them; who is left out, and why."""

    jobs: tuple[PlacedJob, ...]
    unplaced: tuple[Unplaced, ...]
    instances: tuple[Instance, ...]
    job_cost: float
    method: str


def place_jobs(problem: Problem, instances: Sequence[Instance], work: int = 30_000) -> JobPlan:
    """Jobs on what a right plan of services leaves. `work` counts GPUs looked at; at 0 each job is placed once."""
    if not problem.jobs:
        return JobPlan((), (), tuple(instances), 0.0, "no jobs")
    found = room(problem, instances)
    standing = JobPlacement(found, SPLITS_AT_SCALE)
    search.search(standing, work)
    method = "jobs: greedy, improved"
    if work > 0 and exact.is_small(standing):
        small = JobPlacement(found, SPLITS_WHEN_SMALL)
        search.stay(small)
        exact.search(small)
        small.work += standing.work
        if not less(standing.value, small.value):
            standing, method = small, "jobs: every placement"
    if problem.policy.power_budget_w is not None:
        standing.spend()
    placed = _placed(standing)
    beside = {one.place for one in placed}
    kept = tuple(_beside(found, standing, one) if one.place in beside else one for one in instances)
    return JobPlan(placed, explain.unplaced(standing), kept, max(0.0, standing.cost), method)


def _placed(s: JobPlacement) -> tuple[PlacedJob, ...]:
    """By job name."""
    found = []
    for job, gpu in enumerate(s.board.home):
        if gpu >= 0:
            node, index = s.room.places[gpu]
            sm = next(int(s.board.sm[gpu, seat]) for seat, one in enumerate(s.on(int(gpu))) if one == job)
            memory_gib = float(s.room.work.memory_gib[s.room.work.profile[job, s.room.fleet.kind[gpu]]])
            found.append(PlacedJob(s.room.jobs[job].name, node, index, sm, memory_gib, explain.pace(s, job)))
    return tuple(found)


def _beside(room: Room, s: JobPlacement, instance: Instance) -> Instance:
    """What it now predicts; its timeout changes only where the old one no longer keeps its SLO."""
    problem, fleet = room.problem, room.fleet
    service, policy = problem.services[instance.service], problem.policy
    profile = problem.profile(instance.service, instance.variant, instance.node)
    assert profile
    gpu, sm = room.number_of[instance.place], instance.sm_percent
    left = fleet.spare[gpu] - sum(int(share) for share in s.board.sm[gpu, : s.board.taken[gpu]])
    beside = float(fleet.pressure[gpu]) - at(profile.demand.pressure, sm) + s.pressure(gpu)
    feels = profile.demand.sensitivity
    exec_ms = at(profile.latency_ms[instance.batch], sm) * float(fleet.clock[gpu]) ** profile.demand.clock_exponent
    exec_ms *= (1 + feels * beside) * (1 + feels * fleet.share_pressure * float(left) / 100)
    judged, rate, timeout_ms = exec_ms * (1 + policy.exec_margin), instance.rate_per_second, instance.batch_timeout_ms
    shape = (instance.batch, judged)
    if timeout_ms > judged or latency_at(*shape, rate, service.percentile, timeout_ms) > service.slo_ms:
        other = timeout_for(*shape, service.slo_ms, service.percentile, rate)
        timeout_ms = min(timeout_ms, judged) if other is None else other
    latency_ms = latency_at(*shape, rate, service.percentile, timeout_ms)
    return replace(instance, batch_timeout_ms=timeout_ms, exec_ms=exec_ms, latency_ms=latency_ms)
