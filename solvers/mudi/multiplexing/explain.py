"""Why a job runs nowhere, and on which GPU the least change would let it run with all else kept."""

from __future__ import annotations

from collections.abc import Sequence

from solvers.mudi.multiplexing.beside import lacks, seconds
from solvers.mudi.multiplexing.problem import MultiplexedJob, MultiplexingProblem, WaitingJob


def waiting(problem: MultiplexingProblem, placed: Sequence[MultiplexedJob]) -> tuple[WaitingJob, ...]:
    """All jobs that are not placed, by name."""
    there = {one.job for one in placed}
    return tuple(
        _waiting(problem, placed, job.name)
        for job in sorted(problem.jobs, key=lambda job: job.name)
        if job.name not in there
    )


def _waiting(problem: MultiplexingProblem, placed: Sequence[MultiplexedJob], name: str) -> WaitingJob:
    jobs = {job.name: job for job in problem.jobs}
    nearest: tuple[int, float, str, str, str] | None = None
    for gpu in sorted(problem.gpus, key=lambda gpu: gpu.name):
        beside = [jobs[one.job] for one in placed if one.gpu == gpu.name]
        found = lacks(gpu, (*beside, jobs[name]), problem.jobs_per_gpu)
        if not found:  # it fits: what it would cost the others is more than its wait
            more = seconds(gpu, (*beside, jobs[name]), problem.jobs_per_gpu)
            more -= seconds(gpu, beside, problem.jobs_per_gpu)
            one = (0, more, gpu.name, f"on {gpu.name} it would add {more:.6g} seconds a step to all; its wait counts "
                   f"{problem.waiting_seconds:g}", f"a wait that counts {more * (1 + 1e-9):.9g}")  # fmt: skip
        else:
            # Several limits at once: fewer changes first, then the smaller ones.
            one = (len(found), max(lack.excess for lack in found), gpu.name,
                   f"nearest is {gpu.name}: " + "; ".join(lack.reason for lack in found),
                   " and ".join(lack.relaxation for lack in found))  # fmt: skip
        if nearest is None or one[:3] < nearest[:3]:
            nearest = one
    if nearest is None:
        return WaitingJob(name, "there is no GPU", "a GPU")
    return WaitingJob(name, nearest[3], nearest[4])
