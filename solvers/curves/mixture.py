"""A form under several assumptions about what is unexplained, each weighted by how likely it makes the measurements."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import product

import numpy as np

from solvers.curves.observations import CurvePlaces, CurvePrediction, Floats, Observations
from solvers.curves.process import FitTask, Fitted, Unexplained, fit_processes
from solvers.curves.shapes import Shape

NOISES = (0.01, 0.02, 0.04, 0.07)
ASSUMPTIONS = tuple(
    Unexplained(by_batch, by_share, elsewhere, 0.02, noise)
    for by_batch, by_share, elsewhere, noise in product((0.03, 0.1), (0.03, 0.1), (0.01, 0.05), NOISES)
)
# To choose the next measurement, all that could be unexplained is assumed to be.
WIDE = tuple(Unexplained(0.1, 0.1, 0.02, 0.02, noise) for noise in NOISES)
FIRST = Unexplained(0.05, 0.05, 0.02, 0.02, 0.04)  # while the parameters are still far off
FIRST_STEPS = 20
LEAST_WEIGHT = 0.01


@dataclass(frozen=True)
class Mixture:
    """The fits that count, with their weights; the likeliest comes first."""

    name: str
    observed: Observations
    fits: tuple[Fitted, ...]
    weights: Floats

    def predict(self, at: CurvePlaces) -> CurvePrediction:
        parts = [fitted.predict(at) for fitted in self.fits]
        means = np.array([part.mean for part in parts])
        mean = self.weights @ means
        inner = np.array([part.variance for part in parts])
        noise = self.weights @ np.array([part.noise for part in parts])
        variance = self.weights @ (inner + (means - mean) ** 2)
        return CurvePrediction(mean, variance, noise)

    @cached_property
    def left_out(self) -> tuple[Floats, Floats]:
        """Returns each measurement's error and deviation when it is predicted from the others.

        The assumption is the likeliest of all measurements; parameters and weights are fitted without the one left out.
        """
        best = self.fits[0]
        others = [self.observed.without(index) for index in range(len(self.observed))]
        fits = fit_processes(best.shape, [FitTask(observed, best.unexplained, best.parameters) for observed in others])
        predicted = [fitted.predict(self.observed.places.only(index)) for index, fitted in enumerate(fits)]
        errors = self.observed.logarithms - np.array([one.mean[0] for one in predicted])
        return errors, np.array([one.deviation[0] for one in predicted])


def fit_mixture(shape: Shape, observed: Observations, assumptions: tuple[Unexplained, ...] = ASSUMPTIONS) -> Mixture:
    starts = shape.starts(shape.prior(observed))
    firsts = fit_processes(shape, [FitTask(observed, FIRST, start) for start in starts], FIRST_STEPS)
    start = max(firsts, key=lambda fitted: fitted.likelihood).parameters
    fits = fit_processes(shape, [FitTask(observed, assumption, start) for assumption in assumptions])
    fits.sort(key=lambda fitted: -fitted.likelihood)  # stable: the first of equals stays first
    weights = np.exp([fitted.likelihood - fits[0].likelihood for fitted in fits])
    count = int(np.sum(weights / weights.sum() >= LEAST_WEIGHT))
    kept = weights[:count]
    return Mixture(shape.name, observed, tuple(fits[:count]), kept / kept.sum())
