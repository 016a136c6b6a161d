"""Explains why a job waits, and on which GPU the least change would let it run with all else unchanged."""

from __future__ import annotations

from collections.abc import Sequence

from solvers.mudi.multiplexing.job_set import lacks, seconds
from solvers.mudi.multiplexing.problem import MultiplexedJob, MultiplexingProblem, WaitingJob


def waiting(problem: MultiplexingProblem, placed: Sequence[MultiplexedJob]) -> tuple[WaitingJob, ...]:
    """Explains every job that is not placed, by name."""
    running = {entry.job for entry in placed}
    return tuple(
        _waiting(problem, placed, job.name)
        for job in sorted(problem.jobs, key=lambda job: job.name)
        if job.name not in running
    )


def _waiting(problem: MultiplexingProblem, placed: Sequence[MultiplexedJob], name: str) -> WaitingJob:
    jobs = {job.name: job for job in problem.jobs}
    nearest: tuple[int, float, str, str, str] | None = None
    for gpu in sorted(problem.gpus, key=lambda gpu: gpu.name):
        neighbours = [jobs[entry.job] for entry in placed if entry.gpu == gpu.name]
        found = lacks(gpu, (*neighbours, jobs[name]), problem.jobs_per_gpu)
        if not found:  # it fits, but would cost the others more than its wait
            more = seconds(gpu, (*neighbours, jobs[name]), problem.jobs_per_gpu)
            more -= seconds(gpu, neighbours, problem.jobs_per_gpu)
            reason = f"on {gpu.name} it would add {more:.6g} seconds a step in total; its wait counts as "
            reason += f"{problem.waiting_seconds:g}"
            candidate = (0, more, gpu.name, reason, f"a wait that counts as {more * (1 + 1e-9):.9g}")
        else:
            # Several limits at once: prefer fewer changes, then smaller ones.
            reason = f"nearest is {gpu.name}: " + "; ".join(lack.reason for lack in found)
            relaxation = " and ".join(lack.relaxation for lack in found)
            candidate = (len(found), max(lack.excess for lack in found), gpu.name, reason, relaxation)
        if nearest is None or candidate[:3] < nearest[:3]:
            nearest = candidate
    if nearest is None:
        return WaitingJob(name, "there is no GPU", "a GPU")
    return WaitingJob(name, nearest[3], nearest[4])
