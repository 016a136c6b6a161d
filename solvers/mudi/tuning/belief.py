"""Estimates a curve over batches from a few measurements, by a Gaussian process over log2(batch).

It works on the logarithm of the values: there, relative noise is the same everywhere and latency is nearly linear.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from math import log
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def blas_threads() -> Any:
    """Returns the control of linear algebra's threads; it covers the libraries that are loaded by now."""
    import sklearn.gaussian_process  # noqa: F401
    from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]  # comes with scikit-learn

    return ThreadpoolController()


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

    process, _, _ = _fitted(batches, values, noise, CURVES[0])

    def likelihood(curve: TrainingCurve) -> float:
        logarithms = np.log([curve.amplitude**2, curve.doublings])  # the order of the kernel's hyperparameters
        return float(process.log_marginal_likelihood(logarithms, clone_kernel=False))

    return max(CURVES, key=likelihood)  # the first of equals


def belief(
    batches: Sequence[int], values: Sequence[float], noise: float, curve: TrainingCurve, most_batch: int
) -> Belief:
    """Predicts mean and deviation at every batch."""
    process, middle, spread = _fitted(batches, values, noise, curve)
    mean, deviation = process.predict(np.log2(np.arange(1, most_batch + 1.0))[:, None], return_std=True)
    return Belief(mean * spread + middle, deviation * spread)


def _fitted(
    batches: Sequence[int], values: Sequence[float], noise: float, curve: TrainingCurve
) -> tuple[Any, float, float]:
    """Fits the process; also returns the middle and the spread by which its values were normalised."""
    # Imported here because scikit-learn takes a second to load and most of the product does without it.
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import ConstantKernel, Matern

    logarithms = np.array([log(value) for value in values])
    middle, spread = float(logarithms.mean()), max(float(logarithms.std()), noise)
    kernel = ConstantKernel(curve.amplitude**2) * Matern(curve.doublings, nu=2.5)
    process = GaussianProcessRegressor(kernel, alpha=(noise / spread) ** 2, optimizer=None)
    process.fit(np.log2(np.array(batches, dtype=np.float64))[:, None], (logarithms - middle) / spread)
    return process, middle, spread
