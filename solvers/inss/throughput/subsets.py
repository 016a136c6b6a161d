"""Finds the best setting of one GPU for a given set of models: every split of its SMs, each with its best batches."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from solvers.inss.throughput.problem import ThroughputGpuType, ThroughputModel, ThroughputProblem

SLACK = 1e-9  # relative: the rounding of floating-point sums


@dataclass(frozen=True, slots=True)
class Filling:
    """One GPU with its models: the worth in the objective, and (SM%, batch) of each model in the order of the set."""

    worth: float
    shapes: tuple[tuple[int, int], ...]


@lru_cache(maxsize=256)
def splits(count: int, steps: tuple[int, ...]) -> NDArray[np.int64]:
    """Lists every way to give `count` models at most 100 % in total, as rows of indices: constraint (1a)."""
    if count == 0:
        return np.zeros((1, 0), dtype=np.int64)
    rows: list[tuple[int, ...]] = []

    def extend(chosen: tuple[int, ...], free: int) -> None:
        if len(chosen) == count:
            rows.append(chosen)
            return
        for index, step in enumerate(steps):
            if step + (count - len(chosen) - 1) * min(steps) <= free:
                extend((*chosen, index), free - step)

    extend((), 100)
    return np.array(rows, dtype=np.int64).reshape(-1, count)


def best(problem: ThroughputProblem, kind: ThroughputGpuType, models: tuple[ThroughputModel, ...]) -> Filling | None:
    """Returns the best filling of a GPU with exactly these models, or None if they cannot share it."""
    count = len(models)
    if not models:
        return Filling(0.0, ())
    if any(kind.name not in model.speeds for model in models) or not problem.may_share(models):
        return None
    ways = splits(count, problem.sm_steps)
    if len(ways) == 0:
        return None
    steps = np.array(problem.sm_steps)
    slower = kind.schedule_ms_per_model * count + kind.schedule_ms if count > 1 else 0.0
    uses = [
        np.array([model.speeds[kind.name].cache_use(step) for step in problem.sm_steps])[ways[:, i]]
        for i, model in enumerate(models)
    ]
    together = np.sum(uses, axis=0)
    worths: list[NDArray[np.float64]] = []  # by model: rows are splits, columns batches; -inf breaks (1c) or (1d)
    batches: list[list[int]] = []
    for i, model in enumerate(models):
        speed = model.speeds[kind.name]
        own = sorted(batch for batch in model.shapes if batch in speed.transfer_ms)
        columns = []
        for batch in own:
            alone = np.array([speed.run_ms.get((batch, step), np.inf) for step in problem.sm_steps])[ways[:, i]]
            exec_ms = (
                speed.transfer_ms[batch]
                + (speed.kernel_ms + slower) * speed.kernels[batch]
                + alone * (1 + speed.cache_sensitivity * (together - uses[i]))
            )
            per_second = batch / exec_ms * 1000
            right = exec_ms <= model.shapes[batch].most_exec_ms * (1 + SLACK)
            worth = problem.worth(model, 1.0) * per_second
            served = per_second * _usable_share(model.shapes[batch].usable, exec_ms)
            if problem.penalty is None:
                right &= served >= model.rate_per_second * (1 - SLACK)
            else:
                worth -= problem.penalty * np.maximum(0.0, 1 - served / model.rate_per_second)
            columns.append(np.where(right, worth, -np.inf))
        if not columns:
            return None
        worths.append(np.column_stack(columns))
        batches.append(own)
    most = np.sum([worth.max(axis=1) for worth in worths], axis=0)
    found: Filling | None = None
    for row in np.argsort(-most, kind="stable"):
        if most[row] == -np.inf or (found is not None and most[row] <= found.worth):
            break  # no later split can be better, even if its batches fit into memory
        chosen = _fit_memory(kind.memory_gib, models, batches, [worth[row] for worth in worths])
        if chosen is not None and (found is None or chosen[0] > found.worth):
            shapes = zip(steps[ways[row]].tolist(), chosen[1], strict=True)
            found = Filling(chosen[0], tuple((int(percent), batch) for percent, batch in shapes))
    return found


def _usable_share(curve: tuple[tuple[float, float], ...], exec_ms: NDArray[np.float64]) -> NDArray[np.float64]:
    if not curve:
        return np.ones_like(exec_ms)
    return np.interp(exec_ms, [at for at, _ in curve], [share for _, share in curve])


def _fit_memory(
    memory_gib: float, models: tuple[ThroughputModel, ...], batches: list[list[int]], worths: list[NDArray[np.float64]]
) -> tuple[float, tuple[int, ...]] | None:
    """Finds the batches of most worth that fit into memory: constraint (1b), depth first with a bound on the worth."""
    count = len(models)
    options = []
    for i in range(count):
        rows = [
            (float(worths[i][c]), models[i].shapes[batch].memory_gib, batch)
            for c, batch in enumerate(batches[i])
            if worths[i][c] > -np.inf
        ]
        options.append(sorted(rows, key=lambda row: (-row[0], row[1], row[2])))
    if not all(options):
        return None
    possible = [0.0] * (count + 1)
    least = [0.0] * (count + 1)
    for i in range(count - 1, -1, -1):
        possible[i] = possible[i + 1] + options[i][0][0]
        least[i] = least[i + 1] + min(row[1] for row in options[i])
    found: tuple[float, tuple[int, ...]] | None = None

    def extend(i: int, worth: float, free_gib: float, chosen: tuple[int, ...]) -> None:
        nonlocal found
        if found is not None and worth + possible[i] <= found[0]:
            return
        if i == count:
            found = (worth, chosen)
            return
        for value, memory, batch in options[i]:
            if memory + least[i + 1] <= free_gib + SLACK * memory_gib:
                extend(i + 1, worth + value, free_gib - memory, (*chosen, batch))

    extend(0, 0.0, memory_gib, ())
    return found
