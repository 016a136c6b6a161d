"""A physical form with a Gaussian process for what it leaves unexplained, fitted to measurements with outliers.

The unexplained part: some batches and some shares are faster or slower than the form says (tiles that fit badly,
a slice with more memory), which moves the GPU's part of the latency; the launch changes slowly with the batch; and the
rest has no pattern. The parameters' own uncertainty is carried along by the form's slopes. A measurement that lies far
out loses weight: its noise is Student's t.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from solvers.curves.observations import CurvePlaces, CurvePrediction, Floats, Observations
from solvers.curves.shapes import Prior, Shape

DEGREES_OF_FREEDOM = 4.0  # of the noise, as is usual for a robust fit
TAIL = 1.5332 / 1.2816  # 0.9 quantiles of that t and of the normal distribution, whose deviation is stated instead
BATCH_DOUBLINGS = 1.5  # over which the unexplained part of a batch is alike
SHARE_DOUBLINGS = 1.0
STEP_DEVIATIONS = 1.0  # the longest step of a parameter
STEADY_STEP = 3e-3  # of a logarithm; what is left of a parameter is linear
SLOPE_STEP = 1e-5


@dataclass(frozen=True, slots=True)
class Unexplained:
    """Standard deviations, as shares of the latency."""

    by_batch: float
    by_share: float
    elsewhere: float
    launch: float
    noise: float


@dataclass(frozen=True)
class Fitted:
    """A form and its process after the measurements, under one assumption about what is unexplained."""

    shape: Shape
    prior: Prior
    unexplained: Unexplained
    parameters: Floats
    seen: CurvePlaces
    slopes: Floats
    weights: Floats
    inverse: Floats
    likelihood: float

    def covariance(self, at: CurvePlaces) -> tuple[Floats, Floats, Floats]:
        """Returns of log(latency) the mean, the covariance among `at`, and that with what was measured."""
        prior = self.prior.deviation**2
        slopes = _slopes(self.shape, self.parameters, at)
        own = _kernel(self.shape, self.parameters, self.unexplained, at, at) + (slopes * prior) @ slopes.T
        cross = _kernel(self.shape, self.parameters, self.unexplained, at, self.seen)
        cross = cross + (slopes * prior) @ self.slopes.T
        start = self.shape.value(self.parameters, at).logarithm - slopes @ (self.parameters - self.prior.centre)
        return start + cross @ self.weights, own - cross @ self.inverse @ cross.T, cross

    def predict(self, at: CurvePlaces) -> CurvePrediction:
        mean, covariance, _ = self.covariance(at)
        noise = np.full(len(at), (TAIL * self.unexplained.noise) ** 2)
        return CurvePrediction(mean, np.maximum(np.diag(covariance), 0.0), noise)


def fit_process(
    shape: Shape, seen: Observations, unexplained: Unexplained, start: Floats, most_steps: int = 5
) -> Fitted:
    """Finds the parameters by Gauss-Newton steps, and the weight of each measurement along the way."""
    prior = shape.prior(seen)
    precision = np.diag(1.0 / prior.deviation**2)
    parameters, noise = start.copy(), unexplained.noise**2 + seen.variance
    for _ in range(most_steps):
        value = shape.value(parameters, seen.places).logarithm
        slopes = _slopes(shape, parameters, seen.places)
        kernel = _kernel(shape, parameters, unexplained, seen.places, seen.places)
        inverse = np.linalg.inv(kernel + np.diag(noise))
        force = slopes.T @ inverse @ (seen.logarithms - value) + precision @ (prior.centre - parameters)
        step = np.linalg.solve(slopes.T @ inverse @ slopes + precision, force)
        step = np.clip(step, -STEP_DEVIATIONS, STEP_DEVIATIONS)
        parameters = parameters + step
        errors = noise * (inverse @ (seen.logarithms - shape.value(parameters, seen.places).logarithm))
        noise = _student(errors, unexplained.noise**2 + seen.variance)
        if np.abs(step).max() < STEADY_STEP:
            break
    return _conditioned(shape, prior, seen, unexplained, parameters, noise)


def _student(errors: Floats, variance: Floats) -> Floats:
    """Returns the variance of each measurement's noise, given its error."""
    result: Floats = variance * (DEGREES_OF_FREEDOM + errors**2 / variance) / (DEGREES_OF_FREEDOM + 1.0)
    return result


def _conditioned(
    shape: Shape, prior: Prior, seen: Observations, unexplained: Unexplained, parameters: Floats, noise: Floats
) -> Fitted:
    slopes = _slopes(shape, parameters, seen.places)
    covariance = _kernel(shape, parameters, unexplained, seen.places, seen.places)
    covariance = covariance + (slopes * prior.deviation**2) @ slopes.T + np.diag(noise)
    inverse = np.linalg.inv(covariance).astype(np.float64)
    rest = seen.logarithms - shape.value(parameters, seen.places).logarithm + slopes @ (parameters - prior.centre)
    weights = inverse @ rest
    inflated = noise / (unexplained.noise**2 + seen.variance)
    # Normal with these variances, and the density of the variances themselves: inverse gamma, as Student's t has it.
    likelihood = -0.5 * float(rest @ weights) - 0.5 * float(np.linalg.slogdet(covariance)[1])
    likelihood -= 0.5 * DEGREES_OF_FREEDOM * float(np.sum(1.0 / inflated + np.log(inflated) - 1.0))
    return Fitted(shape, prior, unexplained, parameters, seen.places, slopes, weights, inverse, likelihood)


def _slopes(shape: Shape, parameters: Floats, at: CurvePlaces) -> Floats:
    """Returns how log(latency) changes with each parameter, a row a place."""
    count = len(parameters)
    moved = parameters[:, None] + SLOPE_STEP * np.eye(count, count + 1)  # the last column is not moved
    values = shape.value(moved[:, :, None], at).logarithm
    slopes: Floats = (values[:-1] - values[-1]).T / SLOPE_STEP
    return slopes


def _kernel(
    shape: Shape, parameters: Floats, unexplained: Unexplained, left: CurvePlaces, right: CurvePlaces
) -> Floats:
    """Returns the covariance of the unexplained part of log(latency)."""
    first = shape.value(parameters, left)
    second = first if right is left else shape.value(parameters, right)
    batch = _matern(np.log2(left.batch), np.log2(right.batch), BATCH_DOUBLINGS)
    share = _matern(np.log2(left.share), np.log2(right.share), SHARE_DOUBLINGS)
    running = np.outer(first.running, second.running)
    launching = np.outer(first.launching, second.launching)
    total: Floats = running * (unexplained.by_batch**2 * batch + unexplained.by_share**2 * share)
    return total + launching * unexplained.launch**2 * batch + unexplained.elsewhere**2 * batch * share


def _matern(left: Floats, right: Floats, length: float) -> Floats:
    """Returns Matern's covariance of 3/2: continuous slopes, and kinks allowed."""
    distance = np.sqrt(3.0) * np.abs(left[:, None] - right[None, :]) / length
    result: Floats = (1.0 + distance) * np.exp(-distance)
    return result
