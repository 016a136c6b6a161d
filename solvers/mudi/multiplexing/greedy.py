"""Mudi's device selector: each job, as it arrives, goes to the GPU with the smallest slope that can take it."""

from __future__ import annotations

from solvers.mudi.multiplexing.beside import lacks, paces, placed, slope
from solvers.mudi.multiplexing.problem import MultiplexedJob, MultiplexingProblem
from solvers.planning.problem import Job


def solve(problem: MultiplexingProblem) -> list[MultiplexedJob]:
    """Nothing moves once it is placed; only the parts of the spare SMs are cut anew. Ties: by GPU name."""
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
    return [one for gpu in gpus for one in placed(gpu, held[gpu.name])]
