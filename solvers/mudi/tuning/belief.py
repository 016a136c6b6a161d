"""Estimates a curve over batches from a few measurements, by a Gaussian process over log2(batch).

It works on the logarithm of the values: there, relative noise is the same everywhere and latency is nearly linear.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from math import log

import numpy as np

from solvers.gaussian import Floats, GaussianFit, fit_gaussian, matern


@dataclass(frozen=True, slots=True)
class TrainingCurve:
    """The hyperparameters of the process: over how many doublings of the batch it varies, and how much."""

    doublings: float
    amplitude: float  # in standard deviations of the measured values


CURVES = tuple(TrainingCurve(*pair) for pair in product((0.7, 1.5, 3.0, 8.0), (0.7, 2.5)))


@dataclass(frozen=True, slots=True)
class Belief:
    """The mean and the standard deviation of the value's logarithm at every batch from 1."""

    mean: Floats
    deviation: Floats


def likeliest_curve(batches: Sequence[int], values: Sequence[float], noise: float) -> TrainingCurve:
    """Returns the hyperparameters under which the measurements are most likely."""
    normalised = _normalise(values, noise)

    def likelihood(curve: TrainingCurve) -> float:
        return float(_fit(batches, normalised, noise, curve).log_likelihood)

    return max(CURVES, key=likelihood)  # the first of equals


def belief(
    batches: Sequence[int], values: Sequence[float], noise: float, curve: TrainingCurve, most_batch: int
) -> Belief:
    """Predicts mean and deviation at every batch."""
    normalised = _normalise(values, noise)
    process = _fit(batches, normalised, noise, curve)
    cross = _covariance(np.arange(1, most_batch + 1.0), np.array(batches, dtype=np.float64), curve)
    mean, deviation = process.means(cross), process.deviations(curve.amplitude**2, cross)
    return Belief(mean * normalised.spread + normalised.middle, deviation * normalised.spread)


@dataclass(frozen=True, slots=True)
class _Normalised:
    """Logarithms of values around 0 and with a spread of 1, and what to undo that with."""

    logarithms: Floats
    middle: float
    spread: float


def _normalise(values: Sequence[float], noise: float) -> _Normalised:
    logarithms = np.array([log(value) for value in values])
    middle, spread = float(logarithms.mean()), max(float(logarithms.std()), noise)
    return _Normalised((logarithms - middle) / spread, middle, spread)


def _fit(batches: Sequence[int], values: _Normalised, noise: float, curve: TrainingCurve) -> GaussianFit:
    places = np.array(batches, dtype=np.float64)
    own = _covariance(places, places, curve) + (noise / values.spread) ** 2 * np.eye(len(places))
    return fit_gaussian(own, values.logarithms)


def _covariance(left: Floats, right: Floats, curve: TrainingCurve) -> Floats:
    return curve.amplitude**2 * matern(np.log2(left), np.log2(right), curve.doublings, smoothness=5)
