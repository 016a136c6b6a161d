"""Predicts what instances and jobs do among their neighbours: execution times, batch timeouts and latencies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from solvers.latency import latency_at, timeout_for
from solvers.planning.judge.plan_lines import gpus_with
from solvers.planning.judge.readings import Resident, slow_down
from solvers.planning.problem import Instance, Place, PlacedJob, Policy, Problem, Service


def predict_with_exec(instance: Instance, exec_ms: float, service: Service, policy: Policy) -> Instance | None:
    """Returns an instance with this exec, the batch timeout that it needs, and its latency; None if none is enough."""
    judged_ms, rate = exec_ms * (1 + policy.exec_margin), instance.rate_per_second
    promise = (service.percentile, rate, service.variation)
    wait_ms = timeout_for(instance.batch, judged_ms, service.slo_ms, *promise)
    if wait_ms is None:
        return None
    latency_ms = latency_at(instance.batch, judged_ms, rate, service.percentile, wait_ms, service.variation)
    return replace(instance, exec_ms=exec_ms, batch_timeout_ms=wait_ms, latency_ms=float(latency_ms))


def predict_again(
    problem: Problem, instances: Sequence[Instance], jobs: Sequence[PlacedJob], places: set[Place]
) -> tuple[list[Instance], list[PlacedJob]]:
    """Returns all instances and jobs, those on these GPUs with new predictions and timeouts and at the end."""
    gpus = gpus_with(
        problem,
        [instance for instance in instances if instance.place in places],
        [job for job in jobs if job.place in places],
    )
    found = [instance for instance in instances if instance.place not in places]
    training = [job for job in jobs if job.place not in places]
    for place in sorted(gpus):
        slow_down(gpus[place], problem.policy)
        found += [_predict(problem, line) for line in gpus[place].residents]
        here = [job for job in gpus[place].jobs if job.placed.place == place]  # a job on several GPUs once
        training += [replace(job.placed, units_per_second=job.units_per_second or 0.0) for job in here]
    return found, training


def _predict(problem: Problem, line: Resident) -> Instance:
    instance, exec_ms = line.instance, line.exec_ms or 0.0
    predicted = predict_with_exec(instance, exec_ms, problem.services[instance.service], problem.policy)
    return predicted or replace(instance, exec_ms=exec_ms)  # the judge refuses it
