"""Solves InSS's problem: GPU, SM% and batch of every model at once, for the most throughput within the SLOs."""

from __future__ import annotations

from solvers.inss.throughput import bound, exact, greedy, judge
from solvers.inss.throughput.problem import (
    Answer,
    ServedModel,
    Speed,
    ThroughputGpuType,
    ThroughputModel,
    ThroughputOutcome,
    ThroughputProblem,
    ThroughputShape,
    WrongThroughput,
)
from solvers.proof import Proof, above, must_be_right

__all__ = [
    "Answer",
    "ServedModel",
    "Speed",
    "ThroughputGpuType",
    "ThroughputModel",
    "ThroughputOutcome",
    "ThroughputProblem",
    "ThroughputShape",
    "WrongThroughput",
    "serve",
]


def serve(problem: ThroughputProblem, most_models: int = exact.MOST_MODELS) -> ThroughputOutcome:
    """Solves exactly up to `most_models` models, else by the heuristic with an upper bound."""
    if len(problem.models) <= most_models:
        answer, most = exact.solve(problem)
        method = "every subset, set partition"
    else:
        answer, most = greedy.solve(problem), bound.upper_bound(problem)
        method = "greedy, moves"
    must_be_right(method, judge.violations(problem, answer))
    worth = judge.objective(problem, answer)
    most = above(most, worth, method)
    return ThroughputOutcome(answer, Proof(worth, most, method))
