"""A Gaussian process over the logarithm of latency: a plane over log(batch), log(SM%) and log(clock), and what is left.

On the logarithm relative errors are alike everywhere, and power laws are straight.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from math import log2

import numpy as np
from numpy.typing import NDArray

from solvers.curves.measurement import Measurement, Setting

Floats = NDArray[np.float64]

DOUBLINGS = (0.7, 1.4, 2.8, 5.6)  # over how many doublings of batch or SM% the rest varies
LEAST_NOISE_SHARE = 0.005
NOISE_SHARES = (0.01, 0.03, 0.06)
PLANE_DEVIATION = 2.0  # of the exponents, before anything is measured


@dataclass(frozen=True)
class Process:
    """The process after its measurements."""

    highest_clock_mhz: int
    points: Floats
    middle: float
    lengths: tuple[float, float]
    amplitude: float
    inverse: Floats
    weights: Floats
    noise: float
    left_out: Floats  # log(measured) - log(predicted), each predicted from the others
    left_out_deviation: Floats

    def predict(self, settings: Sequence[Setting]) -> tuple[Floats, Floats]:
        """Returns mean and deviation of log(latency)."""
        points = _points([(s.batch, s.sm_percent, s.clock_mhz) for s in settings], self.highest_clock_mhz)
        cross = _kernel(points, self.points, self.lengths, self.amplitude)
        own = _own(points, self.amplitude)
        mean = self.middle + cross @ self.weights
        variance = own - np.einsum("ij,jk,ik->i", cross, self.inverse, cross)
        return mean, np.sqrt(np.maximum(variance, 0.0) + self.noise**2)


def fit_process(measurements: Sequence[Measurement], highest_clock_mhz: int) -> Process:
    """Returns the likeliest process of the grid."""
    points = _points([(m.batch, m.sm_percent, m.clock_mhz) for m in measurements], highest_clock_mhz)
    values = np.log([m.latency_ms for m in measurements])
    middle = float(values.mean())
    errors = np.array([m.noise for m in measurements])
    best: tuple[float, Process] | None = None
    for batch_length, share_length, noise in product(DOUBLINGS, DOUBLINGS, NOISE_SHARES):
        lengths = (batch_length, share_length)
        for amplitude in (0.1, 0.3, 1.0):
            covariance = _kernel(points, points, lengths, amplitude)
            covariance[np.diag_indices_from(covariance)] += noise**2 + np.maximum(errors, LEAST_NOISE_SHARE) ** 2
            inverse: Floats = np.linalg.inv(covariance)
            weights = inverse @ (values - middle)
            _, determinant = np.linalg.slogdet(covariance)
            likelihood = -0.5 * float((values - middle) @ weights) - 0.5 * float(determinant)
            if best is None or likelihood > best[0] + 1e-9:
                diagonal = np.diag(inverse)
                left = (weights / diagonal, 1.0 / np.sqrt(diagonal))
                best = (
                    likelihood,
                    Process(highest_clock_mhz, points, middle, lengths, amplitude, inverse, weights, noise, *left),
                )
    assert best is not None
    return best[1]


def _points(settings: Sequence[tuple[int, float, int]], highest_clock_mhz: int) -> Floats:
    rows = [(log2(b), log2(s), log2(highest_clock_mhz / c)) for b, s, c in settings]
    return np.array(rows, dtype=np.float64).reshape(-1, 3)


def _kernel(left: Floats, right: Floats, lengths: tuple[float, float], amplitude: float) -> Floats:
    plane = PLANE_DEVIATION**2 + PLANE_DEVIATION**2 * (left @ right.T) * np.log(2) ** 2
    batch = np.abs(left[:, None, 0] - right[None, :, 0]) / lengths[0]
    share = np.abs(left[:, None, 1] - right[None, :, 1]) / lengths[1]
    distance = np.sqrt(3.0 * (batch**2 + share**2))
    result: Floats = plane + amplitude**2 * (1.0 + distance) * np.exp(-distance)
    return result


def _own(points: Floats, amplitude: float) -> Floats:
    squares: Floats = (points**2).sum(axis=1)
    return PLANE_DEVIATION**2 * (1.0 + squares * np.log(2) ** 2) + amplitude**2
