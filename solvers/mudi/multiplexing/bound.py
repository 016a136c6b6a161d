"""A lower bound of every placement, job by job: each as if it had a GPU's spare SMs to itself."""

from __future__ import annotations

from solvers.mudi.multiplexing.job_set import LET_GO, value
from solvers.mudi.multiplexing.problem import MultiplexedGpu, MultiplexingProblem
from solvers.planning.problem import Job


def bound(problem: MultiplexingProblem) -> float:
    """Returns the sum of each job's least seconds a step over all GPUs, or of its wait if that is less."""
    least = (
        min([problem.waiting_seconds, *(1 / pace for gpu in problem.gpus if (pace := fastest(gpu, job)) > 0)])
        for job in problem.jobs
    )
    return sum(least) * (1 - 1e-12)


def fastest(gpu: MultiplexedGpu, job: Job) -> float:
    """Returns the best pace this GPU can give the job: any spare share, with only the services as neighbours."""
    profile = job.profiles.get(gpu.gpu_type)
    if not profile or profile.memory_gib > gpu.free_memory_gib * (1 + LET_GO):
        return 0.0
    low, high = profile.units_per_second[0][0], min(profile.units_per_second[-1][0], gpu.spare_sm_percent)
    if high < low:
        return 0.0
    corners = [share for share, _ in profile.units_per_second if low <= share <= high] + [high]
    pressure = sum(service.pressure for service in gpu.services)
    pace = max(value(profile.units_per_second, share) for share in corners)
    slowed: float = gpu.clock**profile.demand.clock_exponent
    return pace / (1 + profile.demand.sensitivity * pressure) * slowed
