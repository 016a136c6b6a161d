"""Finds the best partition of the models over the GPUs, from the best filling of every subset on every type."""

from __future__ import annotations

from itertools import combinations

from solvers.inss.throughput import subsets
from solvers.inss.throughput.problem import ServedModel, ThroughputProblem

MOST_MODELS = 8  # 255 subsets; each further model doubles them


def solve(problem: ThroughputProblem) -> tuple[dict[str, ServedModel], float]:
    """Returns the answer of most worth, and that worth."""
    models = tuple(sorted(problem.models, key=lambda model: model.name))
    count = len(models)
    best_of: dict[tuple[str, int], subsets.Filling] = {}
    for name in sorted(problem.gpus):
        if problem.gpus[name] == 0:
            continue
        alone = [subsets.best(problem, problem.type_of[name], (model,)) is not None for model in models]
        able = [i for i in range(count) if alone[i]]  # company never makes a model faster
        for size in range(1, len(able) + 1):
            for chosen in combinations(able, size):
                mask = sum(1 << i for i in chosen)
                if size > 2 and any((name, mask & ~(1 << i)) not in best_of for i in chosen):
                    continue
                filling = subsets.best(problem, problem.type_of[name], tuple(models[i] for i in chosen))
                if filling is not None:
                    best_of[name, mask] = filling

    # (1e): after each GPU, the best for every set of models served so far
    reached: dict[int, tuple[float, tuple[tuple[int, int], ...]]] = {0: (0.0, ())}  # served -> worth, (GPU, subset)s
    for number, (name, _) in enumerate(problem.places):
        after = dict(reached)
        fillings = [(mask, filling) for (kind, mask), filling in best_of.items() if kind == name]
        for served, (worth, steps) in reached.items():
            for mask, filling in fillings:
                if served & mask:
                    continue
                total = worth + filling.worth
                known = after.get(served | mask)
                if known is None or total > known[0]:
                    after[served | mask] = (total, (*steps, (number, mask)))
        reached = after
    penalty = problem.penalty
    served = max(reached, key=lambda mask: (reached[mask][0] + penalty * mask.bit_count(), -mask))
    worth, steps = reached[served]
    worth -= penalty * (count - served.bit_count())
    answer: dict[str, ServedModel] = {}
    for number, mask in steps:
        name, gpu = problem.places[number]
        here = [models[i] for i in range(count) if mask >> i & 1]
        for model, (percent, batch) in zip(here, best_of[name, mask].shapes, strict=True):
            answer[model.name] = ServedModel(name, gpu, percent, batch)
    return answer, worth
