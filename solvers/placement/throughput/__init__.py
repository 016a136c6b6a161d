"""GPU, SM% and batch of every model at once, for the most throughput under its SLO: InSS's problem, solved."""

from __future__ import annotations

from solvers.placement.throughput import bound, exact, greedy, judge
from solvers.placement.throughput.problem import (
    Answer,
    Certificate,
    GpuType,
    Model,
    Outcome,
    Problem,
    Served,
    Shape,
    Speed,
    WrongProblem,
)

__all__ = [
    "Answer", "Certificate", "GpuType", "Model", "Outcome", "Problem", "Served", "Shape", "Speed", "WrongProblem",
    "serve",
]  # fmt: skip


def serve(problem: Problem, most_models: int = exact.MOST_MODELS) -> Outcome:
    """Exact for up to `most_models` models; beyond, the heuristic with an upper bound. Serving comes before speed."""
    if len(problem.models) <= most_models:
        answer, served, worth = exact.solve(problem)
        if not judge.violations(problem, answer):
            return Outcome(answer, Certificate(served, worth, worth, 0.0, "every subset, set partition"))
    answer = greedy.solve(problem)
    worth = judge.objective(problem, answer)
    above = max(bound.upper_bound(problem), worth)
    gap = (above - worth) / worth if worth > 0 else 0.0
    return Outcome(answer, Certificate(len(answer), worth, above, gap, "greedy, moves"))
