"""No answer has more throughput than this: every model alone on its GPU, the SMs of all GPUs in one pot."""

from __future__ import annotations

from solvers.inss.throughput import subsets
from solvers.inss.throughput.problem import ThroughputGpuType, ThroughputModel, ThroughputProblem


def upper_bound(problem: ThroughputProblem) -> float:
    """Neighbours only slow a model and take its memory, so alone is an upper bound of worth at each share.

    What remains of (1)-(1f) is a multiple-choice knapsack over 100 % x GPUs, solved by dynamic programming."""
    pot = 100 * len(problem.places)
    best = [0.0] * (pot + 1)
    for model in sorted(problem.models, key=lambda one: one.name):
        choices = []
        for step in problem.sm_steps:
            worths = [
                worth
                for kind in problem.gpu_types
                if problem.gpus.get(kind.name, 0) > 0 and (worth := _alone(problem, kind, model, step)) is not None
            ]
            if worths:
                choices.append((step, max(worths)))
        after = list(best)
        for step, worth in choices:
            for percent in range(step, pot + 1):
                after[percent] = max(after[percent], best[percent - step] + worth)
        best = after
    return best[pot]


def _alone(problem: ThroughputProblem, kind: ThroughputGpuType, model: ThroughputModel, step: int) -> float | None:
    narrowed = ThroughputProblem((model,), (kind,), {kind.name: 1}, (step,), problem.is_normalised)
    filling = subsets.best(narrowed, kind, (model,))
    return None if filling is None else filling.worth
