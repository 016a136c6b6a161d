"""Finds the best setting of one GPU for a given set of models: every split of its SMs, each with its best batches."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from solvers.inss.throughput.kernels import fill
from solvers.inss.throughput.problem import ThroughputGpuType, ThroughputModel, ThroughputProblem
from solvers.planning.fleet.grids import Kept


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


class _Tables:
    """The models of a problem on a GPU type as arrays; models that differ in their names alone have one row."""

    def __init__(self, problem: ThroughputProblem, kind: ThroughputGpuType) -> None:
        rows: dict[object, ThroughputModel] = {}
        able = [model for model in problem.models if kind.name in model.speeds]
        for model in able:
            rows.setdefault(likeness(model), model)
        numbers = {key: number for number, key in enumerate(rows)}
        self.row_of = {model.name: numbers[likeness(model)] for model in able}
        models, steps = list(rows.values()), problem.sm_steps
        batches = sorted({batch for model in models for batch in model.shapes})
        size, longest = (
            (len(models), len(batches)),
            max((len(s.usable) for m in models for s in m.shapes.values()), default=0),
        )
        self.batches = np.array(batches, dtype=np.float64)
        self.run_ms = np.full((*size, len(steps)), np.inf)
        self.most_ms, self.memory_gib = np.zeros(size), np.zeros(size)
        self.curves, self.points = np.zeros((*size, longest, 2)), np.zeros(size, dtype=np.int64)
        self.uses = np.zeros((len(models), len(steps)))
        self.terms = np.zeros((len(models), 3))
        for row, model in enumerate(models):
            speed = model.speeds[kind.name]
            self.uses[row] = [speed.cache_use(step) for step in steps]
            self.terms[row] = speed.cache_sensitivity, 1.0 / model.norm_per_second, model.rate_per_second
            for column, batch in enumerate(batches):
                if batch not in model.shapes:
                    continue
                shape = model.shapes[batch]
                self.run_ms[row, column] = [speed.run_ms.get((batch, step), np.inf) for step in steps]
                self.most_ms[row, column], self.memory_gib[row, column] = shape.most_exec_ms, shape.memory_gib
                self.points[row, column] = len(shape.usable)
                self.curves[row, column, : len(shape.usable)] = np.reshape(shape.usable, (-1, 2))


class _AllTables:
    """The tables of a problem, by GPU type, each made once."""

    def __init__(self, problem: ThroughputProblem) -> None:
        self.of = {kind.name: _Tables(problem, kind) for kind in problem.gpu_types}


_read_tables = Kept(_AllTables)


def likeness(model: ThroughputModel) -> object:
    """Returns what two models share that differ in their names alone, as the parts of a service do."""
    return (
        model.rate_per_second, id(model.shapes), id(model.speeds), model.norm_per_second, model.family,
        model.is_dedicated,
    )  # fmt: skip


def best(
    problem: ThroughputProblem, kind: ThroughputGpuType, models: tuple[ThroughputModel, ...],
    ways: NDArray[np.int64] | None = None,
) -> Filling | None:  # fmt: skip
    """Returns the best filling of a GPU with exactly these models, or None if they cannot share it.

    The SMs are split in one of these `ways`, or in any.
    """
    count = len(models)
    if not models:
        return Filling(0.0, ())
    if any(kind.name not in model.speeds for model in models) or not problem.may_share(models):
        return None
    ways = splits(count, problem.sm_steps) if ways is None else ways
    tables = _read_tables(problem).of[kind.name]
    if len(ways) == 0 or len(tables.batches) == 0:
        return None
    members = np.array([tables.row_of[model.name] for model in models], dtype=np.int64)
    chosen = np.zeros(2 * count, dtype=np.int64)
    worth = fill(
        ways, members, tables.batches, tables.run_ms, tables.most_ms, tables.memory_gib, tables.curves, tables.points,
        tables.uses, tables.terms, kind.memory_gib, problem.penalty, chosen,
    )  # fmt: skip
    if worth == -np.inf:
        return None
    percents = [problem.sm_steps[step] for step in chosen[:count].tolist()]
    return Filling(worth, tuple(zip(percents, map(int, tables.batches[chosen[count:]]), strict=True)))
