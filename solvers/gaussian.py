"""Gaussian processes: what seen values say about values elsewhere, given by covariances alone.

A covariance is that of the seen values, noise included. Arrays may stack several processes along their first axes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class GaussianFit:
    """A process that has seen values; its prior mean is 0."""

    inverse: Floats  # of the covariance
    weights: Floats  # the inverse times the values
    log_likelihood: Floats  # of the values, without its constant; -inf where rounding has left no covariance

    def means(self, cross: Floats) -> Floats:
        """Returns the means where the covariances with the seen values are these rows."""
        found: Floats = cross @ self.weights
        return found

    def covariances(self, own: Floats, cross: Floats) -> Floats:
        """Returns the covariance there, of what was `own` before anything was seen."""
        found: Floats = own - cross @ self.inverse @ np.swapaxes(cross, -1, -2)
        return found

    def deviations(self, own: Floats | float, cross: Floats) -> Floats:
        """Returns the standard deviations alone; `own` are the variances before anything was seen."""
        # Summed without the library of linear algebra, which would wake threads for less than they take.
        seen = np.einsum("...ij,...jk,...ik->...i", cross, self.inverse, cross)
        found: Floats = np.sqrt(np.maximum(own - seen, 0.0))
        return found


def fit_gaussian(covariance: Floats, values: Floats) -> GaussianFit:
    """Lets a process see values. Raises LinAlgError where the covariance has no inverse."""
    inverse = invert(covariance)
    signs, logarithms = np.linalg.slogdet(covariance)
    weights: Floats = (inverse @ values[..., None])[..., 0]
    likelihood = -0.5 * np.sum(values * weights, axis=-1) - 0.5 * logarithms
    return GaussianFit(inverse, weights, np.where(signs > 0, likelihood, -np.inf))


def invert(matrices: Floats) -> Floats:
    found: Floats = np.linalg.inv(matrices).astype(np.float64, copy=False)
    return found


def matern(left: Floats, right: Floats, length: float, smoothness: int = 3) -> Floats:
    """Returns Matern's correlation of numbers on the left with those on the right, of smoothness 3/2 or 5/2.

    3/2 has continuous slopes and allows kinks; 5/2 has continuous curvature, too.
    """
    distance = np.sqrt(float(smoothness)) * np.abs(left[..., :, None] - right[..., None, :]) / length
    bent = distance**2 / 3.0 if smoothness == 5 else 0.0
    found: Floats = (1.0 + distance + bent) * np.exp(-distance)
    return found
