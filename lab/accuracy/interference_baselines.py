"""The baselines of predicted interference: effects that add up, the linear formula, gpulet's regression."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from lab.interference.papers import fit_gpulet
from lab.interference.traits import Traits
from solvers.interference.candidate import FittedInterference, Floats
from solvers.interference.factor_layout import FactorShape
from solvers.interference.factors import FittedFactors, fit, fit_scalar
from solvers.interference.observation import SharedRun, SlowdownObservation


@dataclass(frozen=True)
class Additive:
    """A constant of the model at its SM% + a constant of each neighbour at its SM%; relative runs in logarithms."""

    own: dict[tuple[str, int], float]
    beside: dict[tuple[str, int], float]
    of_logarithms: bool

    def log_slowdowns(self, runs: Sequence[SharedRun]) -> Floats:
        usual = float(np.mean(list(self.beside.values())))
        found = np.array(
            [
                self.own.get((run.model, run.sm_percent), 1.0)
                + sum(self.beside.get((each.model, each.sm_percent), usual) for each in run.neighbours)
                for run in runs
            ]
        )
        return found if self.of_logarithms else np.log(np.maximum(found, 1.0))


def fit_additive(observations: Sequence[SlowdownObservation], traits: Traits) -> Additive:
    """Fits slowdown = 1 + the neighbours' constants by least squares."""
    beside, table = _counts(observations)
    target = np.array([each.slowdown - 1 for each in observations])
    weights = np.linalg.lstsq(table, target, rcond=None)[0]
    return Additive({}, dict(zip(beside, weights.tolist(), strict=True)), False)


def fit_additive_by_level(observations: Sequence[SlowdownObservation], traits: Traits) -> Additive:
    """Fits logarithms of relative slowdowns as the model's constant at its SM% + the neighbours' constants."""
    beside, table = _counts(observations)
    own = sorted({(each.run.model, each.run.sm_percent) for each in observations})
    index = {each: at for at, each in enumerate(own)}
    mine = np.zeros((len(observations), len(own)))
    mine[np.arange(len(observations)), [index[each.run.model, each.run.sm_percent] for each in observations]] = 1
    target = np.log([each.slowdown for each in observations])
    weights = np.linalg.lstsq(np.hstack((mine, table)), target, rcond=None)[0].tolist()
    found, others = weights[: len(own)], weights[len(own) :]
    return Additive(dict(zip(own, found, strict=True)), dict(zip(beside, others, strict=True)), True)


def _counts(observations: Sequence[SlowdownObservation]) -> tuple[list[tuple[str, int]], Floats]:
    beside = sorted({(n.model, n.sm_percent) for each in observations for n in each.run.neighbours})
    index = {each: at for at, each in enumerate(beside)}
    table = np.zeros((len(observations), len(beside)))
    for row, each in enumerate(observations):
        for neighbour in each.run.neighbours:
            table[row, index[neighbour.model, neighbour.sm_percent]] += 1
    return beside, table


@dataclass(frozen=True)
class ByLevel:
    """gpulet's regression for each SM%, of logarithms: a limit can make a mix faster, too."""

    weights: dict[int, Floats]
    numbers: dict[str, Floats]

    def log_slowdowns(self, runs: Sequence[SharedRun]) -> Floats:
        return np.array([features(run, self.numbers) @ self.weights[run.sm_percent] for run in runs])


def features(run: SharedRun, numbers: dict[str, Floats]) -> Floats:
    """Returns 1, the model's numbers from runs alone, and the sums of its neighbours' numbers."""
    beside = sum((numbers[each.model] for each in run.neighbours), np.zeros(len(numbers[run.model])))
    return np.array([1.0, *numbers[run.model], *beside])


def fit_gpulet_by_level(observations: Sequence[SlowdownObservation], traits: Traits) -> ByLevel:
    """Fits the regression to relative slowdowns, each SM% by itself."""
    numbers = {model: np.asarray(values, dtype=float) for model, values in traits.numbers.items()}
    weights = {}
    for level in sorted({each.run.sm_percent for each in observations}):
        mine = [each for each in observations if each.run.sm_percent == level]
        table = np.array([features(each.run, numbers) for each in mine])
        weights[level] = np.linalg.lstsq(table, np.log([each.slowdown for each in mine]), rcond=None)[0]
    return ByLevel(weights, numbers)


def fit_linear_by_level(observations: Sequence[SlowdownObservation], traits: Traits) -> FittedFactors:
    """Fits 1 + sensitivity x pressures, both by SM%."""
    return fit(observations, FactorShape(1, sensitivity_by_level=True))


def fit_linear(observations: Sequence[SlowdownObservation], traits: Traits) -> FittedFactors:
    """Fits the product's formula."""
    return fit_scalar(observations)


Fit = Callable[[Sequence[SlowdownObservation], Traits], FittedInterference]
AGAINST_ALONE: dict[str, Fit] = {"additive": fit_additive, "linear": fit_linear, "gpulet": fit_gpulet}
BETWEEN_LEVELS: dict[str, Fit] = {
    "additive": fit_additive_by_level,
    "linear": fit_linear_by_level,
    "gpulet": fit_gpulet_by_level,
}
