"""Matches offline jobs with GPUs that have an online service, for the most throughput of all jobs together."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from solvers.planning.judge.readings import value_at
from solvers.planning.judge.tolerances import is_at_most
from solvers.planning.problem import Instance, Job, Place, PlacedJob, Problem

MOST_SLOWED = 0.2  # of a service's times, by the job beside it


@dataclass(frozen=True, slots=True)
class OnlineGpu:
    """A GPU with an instance of a service, and whether a job may run beside it."""

    seat: Instance
    takes_jobs: bool


@dataclass(frozen=True, slots=True)
class JobPair:
    """A job beside a service, and its speed there against that of the job alone on such a GPU."""

    placed: PlacedJob
    share: float


def matched(problem: Problem, gpus: Sequence[OnlineGpu], staying: Sequence[PlacedJob]) -> list[PlacedJob]:
    """Returns all jobs that run: those that must stay, those that may stay, and the matched ones."""
    nodes = _JobRooms(problem, [gpu.seat for gpu in gpus], staying)
    jobs, taken = list(staying), {job.place for job in staying}
    at = {gpu.seat.place: gpu for gpu in gpus if gpu.takes_jobs}
    names = {job.job for job in staying}
    for running in sorted(problem.state.jobs, key=lambda job: job.job) if problem.state else ():
        gpu, job = at.get(running.place), problem.jobs[running.job]
        if gpu is None or running.job in names or running.place in taken:
            continue
        pair = pair_of(problem, gpu.seat, job)
        if pair and nodes.put(pair.placed, job):
            jobs.append(pair.placed)
            names.add(job.name)
            taken.add(running.place)
    free = [gpu.seat for place, gpu in sorted(at.items()) if place not in taken]
    waiting = [job for name, job in sorted(problem.jobs.items()) if name not in names]
    found = [pair.placed for pair in _best_pairs(problem, free, waiting)]
    return jobs + [placed for placed in found if nodes.put(placed, problem.jobs[placed.job])]


def pair_of(problem: Problem, seat: Instance, job: Job) -> JobPair | None:
    """Returns the job in what the service leaves of its GPU; None if a limit, an SLO or its deadline would break."""
    node, kind = problem.nodes[seat.node], problem.type_at(seat.place)
    profile, online = job.profiles.get(kind.name), problem.profile(seat.service, seat.variant, seat.node)
    if profile is None or online is None or not _may_run_beside(problem, seat, job):
        return None
    share = min(100 - seat.sm_percent, profile.units_per_second[-1][0])
    if share < profile.units_per_second[0][0] or not is_at_most(seat.memory_gib + profile.memory_gib, kind.memory_gib):
        return None
    if online.demand.most_sensitivity * value_at(profile.demand.whole_pressure, share) > MOST_SLOWED:
        return None
    watts = value_at(online.demand.power_w, seat.sm_percent) + value_at(profile.demand.power_w, share)
    if not is_at_most(kind.idle_w + watts, kind.max_w) or (
        node.templates and job.template not in {None, *node.templates}
    ):
        return None
    slower = 1 + profile.demand.most_sensitivity * value_at(online.demand.whole_pressure, seat.sm_percent)
    if problem.policy.pricing == "share":
        slower *= 1 + profile.demand.most_sensitivity * problem.policy.share_pressure
    speed = value_at(profile.units_per_second, share) / slower
    if _is_late(problem, job, speed):
        return None
    placed = PlacedJob(job.name, *seat.place, share, profile.memory_gib)
    return JobPair(placed, speed / profile.units_per_second[-1][1])


def _best_pairs(problem: Problem, free: Sequence[Instance], waiting: Sequence[Job]) -> list[JobPair]:
    """Returns the pairs of the most throughput in all."""
    pairs = {
        (row, column): pair
        for row, seat in enumerate(free)
        for column, job in enumerate(waiting)
        if (pair := pair_of(problem, seat, job))
    }
    if not pairs:
        return []
    from scipy.optimize import linear_sum_assignment  # takes a third of a second

    gain = np.zeros((len(free), len(waiting)))
    for entry, pair in pairs.items():
        gain[entry] = pair.share
    rows, columns = linear_sum_assignment(gain, maximize=True)
    found = [pairs.get((int(row), int(column))) for row, column in zip(rows, columns, strict=True)]
    return [pair for pair in found if pair]


def _may_run_beside(problem: Problem, seat: Instance, job: Job) -> bool:
    policy = problem.policy
    if policy.clients_per_gpu < 2 or policy.jobs_per_gpu < 1:
        return False
    return policy.share_across_tenants or problem.services[seat.service].tenant == job.tenant


def _is_late(problem: Problem, job: Job, units_per_second: float) -> bool:
    now = problem.state.now if problem.state else None
    if job.deadline is None or now is None:
        return False
    left = (job.deadline - now).total_seconds()
    return left <= 0 or units_per_second * left < job.units


class _JobRooms:
    """CPU cores and host memory of each node, less what runs there."""

    def __init__(self, problem: Problem, seats: Iterable[Instance], staying: Iterable[PlacedJob]) -> None:
        self._problem = problem
        self._cores: dict[str, float] = defaultdict(float)
        self._gib: dict[str, float] = defaultdict(float)
        for seat in seats:
            profile = problem.profile(seat.service, seat.variant, seat.node)
            assert profile
            self._use(seat.place, profile.demand.cpu_cores, profile.demand.host_memory_gib)
        for placed in staying:
            demand = problem.jobs[placed.job].profiles[problem.nodes[placed.node].gpu_type].demand
            self._use(placed.place, demand.cpu_cores, demand.host_memory_gib)

    def put(self, placed: PlacedJob, job: Job) -> bool:
        """Takes the job's part of its node, if there is so much."""
        node = self._problem.nodes[placed.node]
        demand = job.profiles[node.gpu_type].demand
        cores, gib = self._cores[node.name] + demand.cpu_cores, self._gib[node.name] + demand.host_memory_gib
        if not is_at_most(cores, node.cpu_cores) or not is_at_most(gib, node.host_memory_gib):
            return False
        self._use(placed.place, demand.cpu_cores, demand.host_memory_gib)
        return True

    def _use(self, place: Place, cores: float, gib: float) -> None:
        self._cores[place[0]] += cores
        self._gib[place[0]] += gib
