"""An upper bound of the throughput: every model as if alone on its GPU, with the SMs of all GPUs pooled."""

from __future__ import annotations

from dataclasses import replace

from solvers.inss.throughput import subsets
from solvers.inss.throughput.problem import ThroughputGpuType, ThroughputModel, ThroughputProblem


def upper_bound(problem: ThroughputProblem) -> float:
    """Bounds the worth of every answer.

    Neighbours only slow a model and use its memory, so its worth alone is an upper bound at each share. Then (1)-(1f)
    reduce to a multiple-choice knapsack over 100 % x GPUs, solved by dynamic programming."""
    pool = 100 * len(problem.places)
    best = [0.0] * (pool + 1)
    for model in sorted(problem.models, key=lambda model: model.name):
        choices = []
        for step in problem.sm_steps:
            worths = [
                worth
                for kind in problem.gpu_types
                if problem.gpus.get(kind.name, 0) > 0 and (worth := _alone(problem, kind, model, step)) is not None
            ]
            if worths:
                choices.append((step, max(worths)))
        after = [worth - (problem.penalty or 0.0) for worth in best]  # left out
        for step, worth in choices:
            for percent in range(step, pool + 1):
                after[percent] = max(after[percent], best[percent - step] + worth)
        best = after
    return best[pool]


def _alone(problem: ThroughputProblem, kind: ThroughputGpuType, model: ThroughputModel, step: int) -> float | None:
    narrowed = replace(problem, models=(model,), gpu_types=(kind,), gpus={kind.name: 1}, sm_steps=(step,))
    filling = subsets.best(narrowed, kind, (model,))
    return None if filling is None else filling.worth
