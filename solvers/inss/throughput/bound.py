"""An upper bound of the throughput: every model as if alone on its GPU, with the SMs of all GPUs pooled."""

from __future__ import annotations

from math import gcd

import numpy as np

from solvers.inss.throughput import subsets
from solvers.inss.throughput.problem import ThroughputModel, ThroughputProblem


def upper_bound(problem: ThroughputProblem) -> float:
    """Bounds the worth of every answer.

    Neighbours only slow a model and use its memory, so its worth alone is an upper bound at each share. Then (1)-(1f)
    reduce to a multiple-choice knapsack over 100 % x GPUs, solved by dynamic programming."""
    unit = gcd(*problem.sm_steps)
    pool = 100 * len(problem.places) // unit
    best = np.zeros(pool + 1)
    alone: dict[object, list[tuple[int, float]]] = {}  # models that differ in their names alone have the same
    for model in sorted(problem.models, key=lambda model: model.name):
        key = subsets.likeness(model)
        if key not in alone:
            alone[key] = _choices(problem, model)
        after = best - problem.penalty  # left out
        for step, worth in alone[key]:
            percent = step // unit
            np.maximum(after[percent:], best[: pool + 1 - percent] + worth, out=after[percent:])
        best = after
    return float(best[pool])


def _choices(problem: ThroughputProblem, model: ThroughputModel) -> list[tuple[int, float]]:
    """Returns the SM% with which a model can run, each with its worth alone on the best GPU."""
    found = []
    for number, step in enumerate(problem.sm_steps):
        ways = np.array([[number]])
        fillings = [
            filling
            for kind in problem.gpu_types
            if problem.gpus.get(kind.name, 0) > 0 and (filling := subsets.best(problem, kind, (model,), ways))
        ]
        if fillings and step <= 100 * len(problem.places):
            found.append((step, max(filling.worth for filling in fillings)))
    return found
