"""Predicts execution times, latencies and paces of a plan whose neighbours have changed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from solvers.latency import latency_at
from solvers.planning.judge import Resident
from solvers.planning.judge.readings import JobResident
from solvers.planning.plan import Plan
from solvers.planning.problem import Instance, PlacedJob, Problem

SAME_SHARE = 1e-9  # of an execution time


def predict_instances(problem: Problem, residents: Iterable[Resident]) -> Mapping[int, Instance]:
    """Returns, by `id()` of each line, the line with its execution time and latency as the judge computes them."""
    return {id(resident.instance): _predict_instance(problem, resident) for resident in residents}


def predict_paces(plan: Plan, residents: Iterable[JobResident]) -> tuple[PlacedJob, ...]:
    """Returns the plan's jobs, each with its pace among these neighbours."""
    pace = {resident.placed: resident.units_per_second or 0.0 for resident in residents}
    return tuple(replace(job, units_per_second=pace.get(job, job.units_per_second)) for job in plan.jobs)


def _predict_instance(problem: Problem, resident: Resident) -> Instance:
    line, exec_ms = resident.instance, resident.exec_ms
    if exec_ms is None or abs(exec_ms - line.exec_ms) <= SAME_SHARE * exec_ms:
        return line
    judged = exec_ms * (1 + problem.policy.exec_margin)
    service = problem.services[line.service]
    wait_ms = min(line.batch_timeout_ms, judged)
    latency_ms = latency_at(line.batch, judged, line.rate_per_second, service.percentile, wait_ms, service.variation)
    return replace(line, exec_ms=exec_ms, latency_ms=float(latency_ms))
