"""What a plan's instances will take, where that has to be found anew: they run among other neighbours now."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from solvers.latency import latency_at
from solvers.planning.judge import Resident
from solvers.planning.judge.readings import JobResident
from solvers.planning.plan import Plan
from solvers.planning.problem import Instance, PlacedJob, Problem

SAME = 1e-9


def predict_instances(problem: Problem, residents: Iterable[Resident]) -> Mapping[int, Instance]:
    """By the `id` of each line: the same with its execution time and latency by the judge's own reading."""
    return {id(one.instance): _predict_instance(problem, one) for one in residents}


def predict_paces(plan: Plan, residents: Iterable[JobResident]) -> tuple[PlacedJob, ...]:
    """The plan's jobs, each as fast as it gets on among these neighbours."""
    pace = {one.placed: one.units_per_second or 0.0 for one in residents}
    return tuple(replace(one, units_per_second=pace.get(one, one.units_per_second)) for one in plan.jobs)


def _predict_instance(problem: Problem, resident: Resident) -> Instance:
    line, exec_ms = resident.instance, resident.exec_ms
    if exec_ms is None or abs(exec_ms - line.exec_ms) <= SAME * exec_ms:
        return line
    judged = exec_ms * (1 + problem.policy.exec_margin)
    percentile = problem.services[line.service].percentile
    wait_ms = min(line.batch_timeout_ms, judged)
    latency_ms = latency_at(line.batch, judged, line.rate_per_second, percentile, wait_ms)
    return replace(line, exec_ms=exec_ms, latency_ms=float(latency_ms))
