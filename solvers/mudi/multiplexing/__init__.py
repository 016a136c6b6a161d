"""Places training jobs on the SMs that services leave free, without breaking any service's SLO."""

from __future__ import annotations

from collections.abc import Sequence

from solvers.mudi.multiplexing import exact, explain, greedy, judge
from solvers.mudi.multiplexing.bound import bound
from solvers.mudi.multiplexing.job_set import slope
from solvers.mudi.multiplexing.problem import (
    MultiplexedGpu,
    MultiplexedJob,
    MultiplexedService,
    MultiplexingPlan,
    MultiplexingProblem,
    WaitingJob,
    WrongMultiplexing,
)
from solvers.proof import Proof, below, must_be_right

__all__ = [
    "MultiplexedGpu",
    "MultiplexedJob",
    "MultiplexedService",
    "MultiplexingPlan",
    "MultiplexingProblem",
    "WaitingJob",
    "WrongMultiplexing",
    "multiplex",
    "slope",
]


def multiplex(problem: MultiplexingProblem, work: int = 2_000_000) -> MultiplexingPlan:
    """Places jobs for the least sum of seconds a step. `work` counts sets and steps; at 0 Mudi's choice is final."""
    claim = exact.solve(problem, work)
    least = max(bound(problem), claim.bound if claim else 0.0)
    answers: list[tuple[str, Sequence[MultiplexedJob]]] = [
        ("greedy: the smallest slope", sorted(greedy.solve(problem)))
    ]
    if claim:
        answers.insert(0, (claim.method, sorted(claim.placed)))
    for method, placed in answers:
        must_be_right(method, judge.violations(problem, placed))
    method, placed = min(answers, key=lambda answer: judge.cost_seconds(problem, answer[1]))
    cost = judge.cost_seconds(problem, placed)
    return MultiplexingPlan(
        tuple(placed),
        judge.steps_per_second(problem, placed),
        explain.waiting(problem, placed),
        Proof(cost, below(least, cost, method), method, claim.work if claim else 0),
    )
