"""Mudi's claim M5: how long it takes to find the smallest SM% of all instances of a cluster, once neighbours change.

Each GPU has an instance at a rate of its own, at the batch that the planner `mudi` chooses, beside up to three
trainings. Three ways answer: CVXPY with a problem a GPU, CVXPY with one problem for all, and the planner's closed form.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import chain
from math import fsum
from random import Random
from statistics import median
from time import process_time
from typing import TypeAlias

from app.control.formulate.problem import build_problem
from lab.evaluate.mudi.experiments import RATES
from lab.evaluate.testbeds import testbed
from lab.evaluate.verdicts import MeasuredFigure, measured_alike
from simulation.fleet_truth import interpolate
from solvers.mudi.fleet.shapes import MudiResident, least_percents, share_at_their_batches
from solvers.mudi.sharing.convex import raise_shares
from solvers.mudi.sharing.problem import SharedGpu
from solvers.planners.names import JOINT, MUDI
from solvers.planning.problem import Instance, Problem
from solvers.proof import SolverBug

PROBLEM_A_GPU = "CVXPY, a problem a GPU"
CLUSTERS = (12, 1000)  # GPUs
ROUNDS, SLOW_ROUNDS = 5, 1  # decisions of a cluster, whose median counts; the latter by a problem a GPU
RATE_SHARES = (0.1, 0.5)  # of the declared rate: all keep their SLO beside the heaviest trainings
SPARE_PERCENT = 60  # of the SMs, split by the trainings of a GPU
MOST_TRAININGS = 3
Percents: TypeAlias = list[int]


def decision_figures(seeds: Sequence[int]) -> dict[str, MeasuredFigure]:
    """Returns the figure of claim M5 for each size of a cluster."""
    return {
        f"decisions of {gpus}": measured_alike([decision_ms(cluster_rounds(gpus, seed)) for seed in seeds])
        for gpus in CLUSTERS
    }


def cluster_rounds(gpus: int, seed: int) -> list[list[SharedGpu]]:
    """Returns the GPUs of a cluster round by round: between two rounds the trainings beside each instance change."""
    problem = build_problem(testbed("mudi", RATES))
    draws = Random(f"decisions {seed}")  # noqa: S311
    cluster = [_gpu(problem, number, draws.uniform(*RATE_SHARES)) for number in range(gpus)]
    return [[replace(gpu, other_pressure=_pressure(problem, draws)) for gpu in cluster] for _ in range(ROUNDS)]


def _gpu(problem: Problem, number: int, share: float) -> SharedGpu:
    """Returns a GPU with an instance at the batch that is best beside the heaviest trainings."""
    service = problem.services[sorted(problem.services)[number % len(problem.services)]]
    node, variant = next(iter(problem.nodes)), service.variants[0]
    profile = problem.profile(service.name, variant, node)
    assert profile
    clock_mhz = problem.type_of(node).top_clock_mhz
    seat = Instance(f"instance-{number}", service.name, node, 0, variant, 1, 0.0, 100, 0.0, clock_mhz, 0.0)
    resident = MudiResident(seat, service, profile, share * service.rate_per_second, is_running=False)
    heaviest = max(
        interpolate(found.demand.whole_pressure, SPARE_PERCENT)
        for job in problem.jobs.values()
        for found in job.profiles.values()
    )
    gpu = share_at_their_batches(problem, [resident], heaviest, problem.type_of(node).memory_gib)
    assert gpu
    return gpu


def _pressure(problem: Problem, draws: Random) -> float:
    """Returns the pressure of none to three trainings that split what is spare."""
    count = draws.randint(0, MOST_TRAININGS)
    trainings = draws.choices([job for _, job in sorted(problem.jobs.items())], k=count)
    profiles = [next(iter(job.profiles.values())) for job in trainings]
    return fsum(interpolate(profile.demand.whole_pressure, SPARE_PERCENT // count) for profile in profiles)


def decision_ms(rounds: Sequence[Sequence[SharedGpu]]) -> dict[str, float]:
    """Returns by method the median time of a decision for all GPUs; refuses methods that differ."""
    _solve_together(rounds[0])  # compiles it
    _solve_each_gpu(rounds[0][:1])
    expected = [_timed(_solve_in_closed_form, gpus) for gpus in rounds]
    found = {
        PROBLEM_A_GPU: [_timed(_solve_each_gpu, gpus) for gpus in rounds[:SLOW_ROUNDS]],
        MUDI: [_timed(_solve_together, gpus) for gpus in rounds],
        JOINT: expected,
    }
    for name, decided in found.items():
        if any(mine != right for (_, mine), (_, right) in zip(decided, expected, strict=False)):
            raise SolverBug(f"{name} finds other SM% than the closed form")
    return {name: median(ms for ms, _ in decided) for name, decided in found.items()}


def _timed(decide: Callable[[Sequence[SharedGpu]], Percents], gpus: Sequence[SharedGpu]) -> tuple[float, Percents]:
    begun = process_time()
    percents = decide(gpus)
    return 1000 * (process_time() - begun), percents


def _solve_each_gpu(gpus: Sequence[SharedGpu]) -> Percents:
    return [percent for gpu in gpus for percent in _solve_together([gpu])]


def _solve_together(gpus: Sequence[SharedGpu]) -> Percents:
    return list(chain.from_iterable(raise_shares(gpus) or ()))


def _solve_in_closed_form(gpus: Sequence[SharedGpu]) -> Percents:
    return [percent for gpu in gpus for percent in least_percents(gpu) or ()]
