"""The parameters of factors as one vector, and runs as arrays of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from solvers.interference.candidate import Floats

Ints = npt.NDArray[np.int64]
BETWEEN_MODELS = 1.0  # standard deviation of a factor's logarithm between models
BETWEEN_LEVELS = 0.5  # of one model's between SM%, and of the exponents' logarithms


@dataclass(frozen=True, slots=True)
class FactorShape:
    """The number of factors, and which of them differ by SM%."""

    rank: int = 1
    sensitivity_by_level: bool = False
    has_exponent: bool = False


@dataclass(frozen=True, slots=True)
class FactorLayout:
    """Names and SM% of the data, and where each kind of parameter lies in the vector that is searched."""

    models: tuple[str, ...]
    levels: tuple[int, ...]
    bases: tuple[tuple[str, int, int], ...]  # (model, SM%, against): what its SM% alone changes
    shape: FactorShape

    @property
    def cells(self) -> int:
        return len(self.levels) * len(self.models) * self.shape.rank

    @property
    def size(self) -> int:
        return 2 * (1 + len(self.models) * self.shape.rank + self.cells) + len(self.levels) + len(self.bases)

    def factors(self, x: Floats, second: int) -> Floats:
        """Returns logarithms of sensitivities (0) or pressures (1): [SM%, model, factor]."""
        models, rank = len(self.models), self.shape.rank
        start = second * (1 + models * rank + self.cells)
        mean = x[start]
        own = x[start + 1 : start + 1 + models * rank].reshape(1, models, rank)
        by_level = x[start + 1 + models * rank : start + 1 + models * rank + self.cells]
        level = by_level.reshape(len(self.levels), models, rank)
        if not second and not self.shape.sensitivity_by_level:
            level = level[:1]
        found: Floats = np.broadcast_to(mean + own + level, (len(self.levels), models, rank))
        return found

    def factor_gradient(self, slope: Floats, second: int) -> Floats:
        """Returns the slopes of the parameters behind one kind of factors."""
        level = slope
        if not second and not self.shape.sensitivity_by_level:
            level = np.concatenate((slope.sum(0, keepdims=True), np.zeros_like(slope[1:])))
        return np.concatenate(([slope.sum()], slope.sum(0).ravel(), level.ravel()))

    @property
    def exponents_at(self) -> int:
        return self.size - len(self.bases) - len(self.levels)

    def prior_weights(self) -> Floats:
        """Returns 1 / variance of each parameter before anything was measured."""
        own = len(self.models) * self.shape.rank
        kind = [0.1, *([BETWEEN_MODELS**-2] * own), *([BETWEEN_LEVELS**-2] * self.cells)]
        exponents = [BETWEEN_LEVELS**-2] * len(self.levels)
        return np.array([*kind, *kind, *exponents, *([1e-4] * len(self.bases))])


@dataclass(frozen=True, slots=True)
class Conditions:
    """Runs as arrays: [run], and [run, SM% x model] counts of the neighbours, weighted between two SM% levels."""

    victim: Ints  # -1: never measured
    level: Floats  # place among the levels, with fractions
    counts: Floats
    strangers: Floats  # how many neighbours were never measured, by level


def conditions(layout: FactorLayout, runs: Sequence[tuple[str, int, Sequence[tuple[str, int]]]]) -> Conditions:
    """Returns the arrays of (model, SM%, neighbours) in this layout; flat beyond the levels measured."""
    index = {model: at for at, model in enumerate(layout.models)}
    levels, models = len(layout.levels), len(layout.models)
    places: dict[int, float] = {}
    counts = np.zeros((len(runs), levels, models))
    strangers = np.zeros((len(runs), levels))
    level = np.zeros(len(runs))
    for row, (_, percent, neighbours) in enumerate(runs):
        for each in (percent, *(sm_percent for _, sm_percent in neighbours)):
            if each not in places:
                places[each] = float(np.interp(each, layout.levels, np.arange(len(layout.levels))))
        level[row] = places[percent]
        for neighbour, sm_percent in neighbours:
            low = int(places[sm_percent])
            share = places[sm_percent] - low
            target = counts[row, :, index[neighbour]] if neighbour in index else strangers[row]
            target[low] += 1 - share
            if share:
                target[low + 1] += share
    victim = np.array([index.get(model, -1) for model, _, _ in runs], dtype=np.int64)
    return Conditions(victim, level, counts.reshape(len(runs), levels * models), strangers)
