"""What is believed of a curve over batches after some measurements: a Gaussian process over log2(batch).

Values are taken as logarithms: there noise of some per cent is the same everywhere, and latency is nearly straight.
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


def linear_algebra() -> Any:
    """What sets the threads of linear algebra: made only when all of it is loaded, or it would miss some."""
    import sklearn.gaussian_process  # noqa: F401
    from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]  # comes with scikit-learn

    return ThreadpoolController()


@dataclass(frozen=True, slots=True)
class TrainingCurve:
    """How a curve may run: over how many doublings of the batch it keeps its course, and how far it strays."""

    doublings: float
    amplitude: float  # in standard deviations of what was measured


COURSES = tuple(TrainingCurve(*each) for each in product((0.7, 1.5, 3.0, 8.0), (0.7, 2.5)))


@dataclass(frozen=True, slots=True)
class Belief:
    """Mean and standard deviation of the value's logarithm, at every batch from 1."""

    mean: Floats
    deviation: Floats


def likeliest_course(batches: Sequence[int], values: Sequence[float], noise: float) -> TrainingCurve:
    """The course under which what was measured was likeliest to be."""

    process, _, _ = _fitted(batches, values, noise, COURSES[0])

    def likelihood(course: TrainingCurve) -> float:
        logarithms = np.log([course.amplitude**2, course.doublings])  # the order of the kernel's hyperparameters
        return float(process.log_marginal_likelihood(logarithms, clone_kernel=False))

    return max(COURSES, key=likelihood)  # the first of equals


def belief(
    batches: Sequence[int], values: Sequence[float], noise: float, course: TrainingCurve, most_batch: int
) -> Belief:
    """Mean and deviation at every batch."""
    process, middle, spread = _fitted(batches, values, noise, course)
    mean, deviation = process.predict(np.log2(np.arange(1, most_batch + 1.0))[:, None], return_std=True)
    return Belief(mean * spread + middle, deviation * spread)


def _fitted(
    batches: Sequence[int], values: Sequence[float], noise: float, course: TrainingCurve
) -> tuple[Any, float, float]:
    """The process, and the middle and spread that its values were brought to 0 and 1 by."""
    # Imported where it is used: most of the product decides without scikit-learn, which takes a second to load.
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import ConstantKernel, Matern

    logarithms = np.array([log(value) for value in values])
    middle, spread = float(logarithms.mean()), max(float(logarithms.std()), noise)
    kernel = ConstantKernel(course.amplitude**2) * Matern(course.doublings, nu=2.5)
    process = GaussianProcessRegressor(kernel, alpha=(noise / spread) ** 2, optimizer=None)
    process.fit(np.log2(np.array(batches, dtype=np.float64))[:, None], (logarithms - middle) / spread)
    return process, middle, spread
