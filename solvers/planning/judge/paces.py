"""The speeds of jobs beside all that runs on their GPUs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from solvers.planning.judge.plan_lines import gpus_with
from solvers.planning.judge.readings import slow_down
from solvers.planning.problem import Instance, PlacedJob, Problem


def pace_jobs(problem: Problem, instances: Iterable[Instance], jobs: Iterable[PlacedJob]) -> list[PlacedJob]:
    """Returns the jobs with the speeds that the judge computes, in the order of their names."""
    found = []
    for gpu in gpus_with(problem, instances, jobs).values():
        slow_down(gpu, problem.policy)
        found += [replace(line.placed, units_per_second=line.units_per_second or 0.0) for line in gpu.jobs]
    return sorted(found, key=lambda job: job.job)
