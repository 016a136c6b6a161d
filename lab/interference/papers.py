"""Papers' models of interference by traits: OLTunes' affinity, Mudi's slope, gpulet's regression.

Each is a regression by least squares on what its paper says matters; a constant beside it is fitted, too."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from lab.interference.traits import Traits
from solvers.interference.affinity import workload_affinity
from solvers.interference.candidate import Floats
from solvers.interference.observation import SharedRun, SlowdownObservation

SMALL_RIDGE = 1e-6
LEAST_SLOWDOWN = 1.0


@dataclass(frozen=True)
class FittedRegression:
    """Weights of features of a run; predicts slowdowns of at least 1, or their logarithms."""

    features: Callable[[SharedRun], Floats]
    weights: Floats
    of_logarithms: bool = False

    def log_slowdowns(self, runs: Sequence[SharedRun]) -> Floats:
        found = np.array([self.features(run) for run in runs]) @ self.weights
        return np.maximum(found, 0.0) if self.of_logarithms else np.log(np.maximum(found, LEAST_SLOWDOWN))


def _regression(
    observations: Sequence[SlowdownObservation],
    features: Callable[[SharedRun], Floats],
    of_logarithms: bool = False,
    ridge: float = SMALL_RIDGE,
) -> FittedRegression:
    table = np.array([features(each.run) for each in observations])
    target = np.array([each.slowdown for each in observations])
    target = np.log(target) if of_logarithms else target
    samples = np.array([float(each.samples) for each in observations])
    normal = table.T @ (samples[:, None] * table) + ridge * samples.sum() * np.diag(
        [0.0, *[1.0] * (table.shape[1] - 1)]
    )
    return FittedRegression(
        features, np.linalg.lstsq(normal, table.T @ (samples * target), rcond=None)[0], of_logarithms
    )


def fit_gpulet(observations: Sequence[SlowdownObservation], traits: Traits) -> FittedRegression:
    """gpulet: linear in solo numbers of the model and of its neighbours (there: L2 and DRAM use)."""
    numbers = {model: np.asarray(values, dtype=float) for model, values in traits.numbers.items()}

    def features(run: SharedRun) -> Floats:
        beside = sum((numbers[each.model] for each in run.neighbours), np.zeros(len(numbers[run.model])))
        return np.array([1.0, *numbers[run.model], *beside])

    return _regression(observations, features)


def fit_mudi(observations: Sequence[SlowdownObservation], traits: Traits) -> FittedRegression:
    """Mudi: the slope from cumulative numbers of layers (or other traits) of all neighbours, in logarithms."""
    numbers = {model: np.asarray(values, dtype=float) for model, values in traits.numbers.items()}
    table = np.array([numbers[model] for model in sorted(numbers)])
    spread = np.where(table.std(0) > 0, table.std(0), 1.0)

    def features(run: SharedRun) -> Floats:
        beside = sum((numbers[each.model] / spread for each in run.neighbours), np.zeros(len(spread)))
        return np.array([1.0, len(run.neighbours), run.sm_percent / 100, *(numbers[run.model] / spread), *beside])

    return _regression(observations, features, True, ridge=0.01)


def fit_affinity(observations: Sequence[SlowdownObservation], traits: Traits) -> FittedRegression:
    """OLTunes: the sigmoid of differences of compute/memory ratios (9), averaged (10); the model's own ratio."""
    ratios = traits.compute_to_memory
    middle = float(np.median(list(ratios.values())))

    def features(run: SharedRun) -> Floats:
        own = ratios.get(run.model, middle)
        gaps = [abs(own - ratios.get(each.model, middle)) for each in run.neighbours]
        affinity = float(np.mean([workload_affinity(own, own + gap) for gap in gaps])) / 100 if gaps else 1.0
        return np.array([1.0, len(gaps), len(gaps) * (1 - affinity), own * bool(gaps)])

    return _regression(observations, features)
