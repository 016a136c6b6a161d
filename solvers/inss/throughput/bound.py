"""An upper bound of the throughput: every model as if alone on its GPU, with the SMs of all GPUs pooled."""

from __future__ import annotations

from dataclasses import replace
from math import gcd

import numpy as np

from solvers.inss.throughput import subsets
from solvers.inss.throughput.problem import ThroughputGpuType, ThroughputModel, ThroughputProblem


def upper_bound(problem: ThroughputProblem) -> float:
    """Bounds the worth of every answer.

    Neighbours only slow a model and use its memory, so its worth alone is an upper bound at each share. Then (1)-(1f)
    reduce to a multiple-choice knapsack over 100 % x GPUs, solved by dynamic programming."""
    unit = gcd(*problem.sm_steps)
    pool = 100 * len(problem.places) // unit
    best = np.zeros(pool + 1)
    alone: dict[object, list[tuple[int, float]]] = {}  # models that differ in their names alone have the same
    for model in sorted(problem.models, key=lambda model: model.name):
        key = model.rate_per_second, id(model.shapes), id(model.speeds), model.norm_per_second
        if key not in alone:
            alone[key] = _choices(problem, model)
        after = best - (problem.penalty or 0.0)  # left out
        for step, worth in alone[key]:
            percent = step // unit
            np.maximum(after[percent:], best[: pool + 1 - percent] + worth, out=after[percent:])
        best = after
    return float(best[pool])


def _choices(problem: ThroughputProblem, model: ThroughputModel) -> list[tuple[int, float]]:
    """Returns the SM% with which a model can run, each with its worth alone on the best GPU."""
    found = []
    for step in problem.sm_steps:
        worths = [
            worth
            for kind in problem.gpu_types
            if problem.gpus.get(kind.name, 0) > 0 and (worth := _alone(problem, kind, model, step)) is not None
        ]
        if worths and step <= 100 * len(problem.places):
            found.append((step, max(worths)))
    return found


def _alone(problem: ThroughputProblem, kind: ThroughputGpuType, model: ThroughputModel, step: int) -> float | None:
    narrowed = replace(problem, models=(model,), gpu_types=(kind,), gpus={kind.name: 1}, sm_steps=(step,))
    filling = subsets.best(narrowed, kind, (model,))
    return None if filling is None else filling.worth
