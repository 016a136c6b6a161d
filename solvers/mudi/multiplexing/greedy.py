"""Mudi's device selector: puts each job, in order of arrival, on the GPU of smallest slope with room for it."""

from __future__ import annotations

from solvers.mudi.multiplexing.job_set import lacks, paces, placed, slope
from solvers.mudi.multiplexing.problem import MultiplexedJob, MultiplexingProblem
from solvers.planning.problem import Job


def solve(problem: MultiplexingProblem) -> list[MultiplexedJob]:
    """Places jobs in order; a placed job never moves, only its part of the spare SMs changes. Ties go by GPU name."""
    gpus = sorted(problem.gpus, key=lambda gpu: gpu.name)
    held: dict[str, list[Job]] = {gpu.name: [] for gpu in gpus}
    for job in problem.jobs:
        able = [
            (slope(gpu, (*held[gpu.name], job)), gpu.name)
            for gpu in gpus
            if not lacks(gpu, (*held[gpu.name], job), problem.jobs_per_gpu)
            and min(paces(gpu, (*held[gpu.name], job))) > 0
        ]
        if able:
            held[min(able)[1]].append(job)
    return [entry for gpu in gpus for entry in placed(gpu, held[gpu.name])]
