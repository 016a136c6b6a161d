"""Finds the best placement with a proof: lists the job sets that fit each GPU, then picks one set a GPU."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from itertools import combinations
from math import comb, inf

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import coo_array

from solvers.mudi.multiplexing.job_set import placed, seconds
from solvers.mudi.multiplexing.problem import MultiplexedGpu, MultiplexedJob, MultiplexingProblem
from solvers.planning.problem import Job

EVERY_SUBSET = 12  # up to so many jobs, all subsets are enumerated


@dataclass(frozen=True, slots=True)
class ExactMultiplexing:
    """A placement, a lower bound of all placements, and how both were found."""

    placed: list[MultiplexedJob]
    bound: float
    method: str
    work: int


@dataclass(frozen=True, slots=True)
class PlacementColumn:
    """One set of jobs, as bits, on one GPU."""

    gpu: int
    jobs: int
    seconds: float


def solve(problem: MultiplexingProblem, work: int) -> ExactMultiplexing | None:
    """Solves within the work allowed; returns None if the sets alone exceed it."""
    jobs = sorted(problem.jobs, key=lambda job: job.name)
    gpus = sorted(problem.gpus, key=lambda gpu: gpu.name)
    sets = sum(comb(len(jobs), count) for count in range(1, problem.jobs_per_gpu + 1)) * len(gpus)
    if sets > work:
        return None
    columns = _columns(problem, gpus, jobs)
    subsets = 2 ** len(jobs) * max(1, len(columns))
    if len(jobs) <= EVERY_SUBSET and sets + subsets <= work:
        chosen = _by_subsets(problem, len(gpus), len(jobs), columns)
        cost = _cost(problem, len(jobs), chosen)
        return ExactMultiplexing(_placed(gpus, jobs, chosen), cost * (1 - 1e-12), "exact: all subsets", sets + subsets)
    return _by_highs(problem, gpus, jobs, columns, work - sets, sets)


def _columns(problem: MultiplexingProblem, gpus: list[MultiplexedGpu], jobs: list[Job]) -> list[PlacementColumn]:
    """Lists all sets that fit, GPU by GPU. A larger set may fit where a smaller one does not: its parts are smaller."""
    found = []
    for place, gpu in enumerate(gpus):
        for count in range(1, problem.jobs_per_gpu + 1):
            for chosen in combinations(range(len(jobs)), count):
                cost = seconds(gpu, [jobs[index] for index in chosen], problem.jobs_per_gpu)
                if cost < inf:
                    found.append(PlacementColumn(place, sum(1 << index for index in chosen), cost))
    return found


def _cost(problem: MultiplexingProblem, jobs: int, chosen: list[PlacementColumn]) -> float:
    running = sum(column.jobs.bit_count() for column in chosen)
    return sum(column.seconds for column in chosen) + problem.waiting_seconds * (jobs - running)


def _by_subsets(
    problem: MultiplexingProblem, gpus: int, jobs: int, columns: list[PlacementColumn]
) -> list[PlacementColumn]:
    """Enumerates all subsets; best[subset] is the least seconds at which exactly these jobs run on the GPUs so far."""
    best: dict[int, tuple[float, list[PlacementColumn]]] = {0: (0.0, [])}
    for gpu in range(gpus):
        mine = [column for column in columns if column.gpu == gpu]
        for subset, (cost, chosen) in sorted(best.items()):  # a copy, because this GPU takes one set only
            for column in mine:
                both = subset | column.jobs
                if not subset & column.jobs and cost + column.seconds < best.get(both, (inf, []))[0]:
                    best[both] = (cost + column.seconds, [*chosen, column])
    return min((chosen for _, chosen in best.values()), key=lambda chosen: _cost(problem, jobs, chosen))


def _by_highs(
    problem: MultiplexingProblem,
    gpus: list[MultiplexedGpu],
    jobs: list[Job],
    columns: list[PlacementColumn],
    budget: int,
    done: int,
) -> ExactMultiplexing:
    """Solves the set packing by HiGHS over classes of equal GPUs; its LP is nearly integral here.

    The nodes allowed are the `budget` over the number of columns."""
    alike: dict[MultiplexedGpu, list[int]] = defaultdict(list)
    for place, gpu in enumerate(gpus):
        nameless = tuple(replace(service, name="") for service in gpu.services)
        alike[replace(gpu, name="", services=nameless)].append(place)
    first = {members[0]: (row, members) for row, members in enumerate(alike.values())}
    columns = [column for column in columns if column.gpu in first]
    if not columns:
        return ExactMultiplexing([], problem.waiting_seconds * len(jobs), "exact: nothing fits", done)
    rows = [
        (first[column.gpu][0] if row < 0 else len(first) + row, place)
        for place, column in enumerate(columns)
        for row in (-1, *(bit for bit in range(len(jobs)) if column.jobs >> bit & 1))
    ]
    rows += [(len(first) + job, len(columns) + job) for job in range(len(jobs))]  # or it waits
    where = np.array(rows)
    matrix = coo_array(
        (np.ones(len(rows)), (where[:, 0], where[:, 1])), (len(first) + len(jobs), len(columns) + len(jobs))
    )
    costs = np.array([column.seconds for column in columns] + [problem.waiting_seconds] * len(jobs))
    lower = np.concatenate((np.zeros(len(first)), np.ones(len(jobs))))
    upper = np.array([len(members) for members in alike.values()] + [1] * len(jobs))
    nodes = max(1, budget // len(costs))
    scale = float(np.abs(costs).max())
    found = milp(
        costs / scale,
        constraints=LinearConstraint(matrix.tocsr(), lower, upper),
        integrality=np.ones(len(costs)),
        bounds=Bounds(0, 1),
        options={"node_limit": nodes, "mip_rel_gap": 0.0},
    )
    work = done + len(costs) * (1 + int(found.mip_node_count or 0))
    # The solver's tolerances are 1e-6 of a job; the bound is lowered by as much.
    bound = max(0.0, float(found.mip_dual_bound or 0.0) * scale * (1 - 1e-6) - 1e-6) if found.mip_dual_bound else 0.0
    if found.x is None:
        return ExactMultiplexing([], bound, "HiGHS, cut short", work)
    free = {row: list(members) for row, members in first.values()}
    chosen = [
        replace(column, gpu=free[first[column.gpu][0]].pop(0))
        for use, column in zip(found.x, columns, strict=False)
        if use > 0.5
    ]
    return ExactMultiplexing(
        _placed(gpus, jobs, chosen), bound, "exact: HiGHS" if found.status == 0 else "HiGHS, cut short", work
    )


def _placed(gpus: list[MultiplexedGpu], jobs: list[Job], chosen: list[PlacementColumn]) -> list[MultiplexedJob]:
    return [
        entry
        for column in chosen
        for entry in placed(gpus[column.gpu], [job for place, job in enumerate(jobs) if column.jobs >> place & 1])
    ]
