"""A physical form with a Gaussian process for what it leaves unexplained, fitted to measurements with outliers.

The unexplained part: some batches and some shares are faster or slower than the form says (tiles that fit badly,
a slice with more memory), which moves the GPU's part of the latency; the launch changes slowly with the batch; and the
rest has no pattern. The parameters' own uncertainty is carried along by the form's slopes. A measurement that lies far
out loses weight: its noise is Student's t.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from solvers.curves.observations import CurvePlaces, CurvePrediction, Floats, Observations, stack_places
from solvers.curves.shapes import Prior, Shape, Value
from solvers.gaussian import GaussianFit, fit_gaussian, invert, matern

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

    def variances(self) -> tuple[float, float, float, float]:
        """Returns those of what has a pattern, in the order of the fields."""
        return self.by_batch**2, self.by_share**2, self.elsewhere**2, self.launch**2


@dataclass(frozen=True)
class Fitted:
    """A form and its process after the measurements, under one assumption about what is unexplained."""

    shape: Shape
    prior: Prior
    unexplained: Unexplained
    parameters: Floats
    observed: CurvePlaces
    slopes: Floats
    process: GaussianFit
    likelihood: float

    def covariance(self, at: CurvePlaces) -> tuple[Floats, Floats, Floats]:
        """Returns the mean of log(latency), its covariance among `at`, and that with the measurements."""
        prior, variances = self.prior.deviation**2, np.array(self.unexplained.variances())[:, None, None]
        there, slopes = _linear(self.shape, self.parameters, at)
        observed = self.shape.value(self.parameters, self.observed)
        own = _kernel(variances, there, there, _likeness(at, at)) + (slopes * prior) @ slopes.T
        cross = _kernel(variances, there, observed, _likeness(at, self.observed)) + (slopes * prior) @ self.slopes.T
        start = there.logarithm - slopes @ (self.parameters - self.prior.centre)
        return start + self.process.means(cross), self.process.covariances(own, cross), cross

    def predict(self, at: CurvePlaces) -> CurvePrediction:
        mean, covariance, _ = self.covariance(at)
        noise = np.full(len(at), (TAIL * self.unexplained.noise) ** 2)
        return CurvePrediction(mean, np.maximum(np.diag(covariance), 0.0), noise)


@dataclass(frozen=True, slots=True)
class FitTask:
    """Measurements, an assumption about what is unexplained, and where the search for the parameters begins."""

    observed: Observations
    unexplained: Unexplained
    start: Floats


def fit_processes(shape: Shape, tasks: Sequence[FitTask], most_steps: int = 5) -> list[Fitted]:
    """Finds the parameters by Gauss-Newton steps, and the weight of each measurement along the way.

    All tasks have equally many measurements and are fitted at once: each is so small that calls would cost most.
    """
    stack = _stack(shape, tasks)
    parameters, noise = np.array([task.start for task in tasks]), stack.least_noise.copy()
    moving = np.arange(len(tasks))
    for _ in range(most_steps):
        before = parameters[moving]
        parameters[moving], noise[moving] = stack.only(moving).step(before, noise[moving])
        moving = moving[np.abs(parameters[moving] - before).max(axis=1) >= STEADY_STEP]
        if not len(moving):
            break
    return stack.conditioned(tasks, parameters, noise)


@dataclass(frozen=True)
class _Stack:
    """Tasks as arrays: the first axis is for the task, but of `variances` the second."""

    shape: Shape
    at: CurvePlaces
    logarithms: Floats
    least_noise: Floats  # variances, before a measurement lies far out
    centre: Floats
    spread: Floats
    variances: Floats  # of what is unexplained and has a pattern
    likeness: tuple[Floats, Floats]

    def only(self, rows: NDArray[np.intp]) -> _Stack:
        at = CurvePlaces(self.at.batch[rows], self.at.share[rows], self.at.slowing[rows])
        batch, share = self.likeness
        return _Stack(
            self.shape, at, self.logarithms[rows], self.least_noise[rows], self.centre[rows], self.spread[rows],
            self.variances[:, rows], (batch[rows], share[rows]),
        )  # fmt: skip

    def step(self, parameters: Floats, noise: Floats) -> tuple[Floats, Floats]:
        """Returns the parameters after one step, and the variance of each measurement's noise by what is left."""
        value, slopes = _linear(self.shape, parameters, self.at)
        kernel = _kernel(self.variances, value, value, self.likeness)
        inverse = invert(kernel + _diagonal(noise))
        precision = 1.0 / self.spread**2
        weighted = np.swapaxes(slopes, 1, 2) @ inverse
        force = _times(weighted, self.logarithms - value.logarithm) + precision * (self.centre - parameters)
        step = np.linalg.solve(weighted @ slopes + _diagonal(precision), force[:, :, None])[:, :, 0]
        stepped = parameters + np.clip(step, -STEP_DEVIATIONS, STEP_DEVIATIONS)
        rest = self.logarithms - self.shape.value(stepped.T[:, :, None], self.at).logarithm
        return stepped, _student(noise * _times(inverse, rest), self.least_noise)

    def conditioned(self, tasks: Sequence[FitTask], parameters: Floats, noise: Floats) -> list[Fitted]:
        value, slopes = _linear(self.shape, parameters, self.at)
        covariance = _kernel(self.variances, value, value, self.likeness) + _diagonal(noise)
        covariance = covariance + (slopes * self.spread[:, None, :] ** 2) @ np.swapaxes(slopes, 1, 2)
        rest = self.logarithms - value.logarithm + _times(slopes, parameters - self.centre)
        fit = fit_gaussian(covariance, rest)
        inflated = noise / self.least_noise
        # Normal with these variances, and their own density: inverse gamma, as Student's t has it.
        density = np.sum(1.0 / inflated + np.log(inflated) - 1.0, axis=1)
        likelihood = fit.log_likelihood - 0.5 * DEGREES_OF_FREEDOM * density
        return [
            Fitted(
                self.shape, Prior(self.centre[row], self.spread[row]), task.unexplained, parameters[row],
                task.observed.places, slopes[row],
                GaussianFit(fit.inverse[row], fit.weights[row], fit.log_likelihood[row]), float(likelihood[row]),
            )
            for row, task in enumerate(tasks)
        ]  # fmt: skip


def _stack(shape: Shape, tasks: Sequence[FitTask]) -> _Stack:
    at = stack_places([task.observed.places for task in tasks])
    priors = [shape.prior(task.observed) for task in tasks]
    noise = np.array([task.unexplained.noise**2 + task.observed.variance for task in tasks])
    return _Stack(
        shape, at, np.array([task.observed.logarithms for task in tasks]), noise,
        np.array([prior.centre for prior in priors]), np.array([prior.deviation for prior in priors]),
        np.array([task.unexplained.variances() for task in tasks]).T[:, :, None, None], _likeness(at, at),
    )  # fmt: skip


def _student(errors: Floats, variance: Floats) -> Floats:
    """Returns the variance of each measurement's noise, given its error."""
    result: Floats = variance * (DEGREES_OF_FREEDOM + errors**2 / variance) / (DEGREES_OF_FREEDOM + 1.0)
    return result


def _linear(shape: Shape, parameters: Floats, at: CurvePlaces) -> tuple[Value, Floats]:
    """Returns the form at the parameters, and how log(latency) changes with each: a row a place, a column a parameter.

    Parameters are the last axis; those before it are for tasks, as in `at`.
    """
    count = parameters.shape[-1]
    steps = SLOPE_STEP * np.eye(count, count + 1)  # the last column is not moved
    moved = np.moveaxis(parameters, -1, 0)[:, None] + steps.reshape(steps.shape + (1,) * (parameters.ndim - 1))
    values = shape.value(moved[..., None], at)
    slopes: Floats = np.moveaxis(values.logarithm[:-1] - values.logarithm[-1], 0, -1) / SLOPE_STEP
    return Value(values.logarithm[-1], values.running[-1], values.launching[-1]), slopes


def _kernel(variances: Floats, left: Value, right: Value, likeness: tuple[Floats, Floats]) -> Floats:
    """Returns the covariance of the unexplained part of log(latency)."""
    by_batch, by_share, elsewhere, launch = variances
    batch, share = likeness
    running = left.running[..., :, None] * right.running[..., None, :]
    launching = left.launching[..., :, None] * right.launching[..., None, :]
    total: Floats = running * (by_batch * batch + by_share * share)
    total += launching * launch * batch + elsewhere * batch * share
    return total


def _likeness(left: CurvePlaces, right: CurvePlaces) -> tuple[Floats, Floats]:
    """Returns how alike the unexplained part is by batch, and by share."""
    batch = matern(np.log2(left.batch), np.log2(right.batch), BATCH_DOUBLINGS)
    return batch, matern(np.log2(left.share), np.log2(right.share), SHARE_DOUBLINGS)


def _diagonal(values: Floats) -> Floats:
    result: Floats = values[:, :, None] * np.eye(values.shape[1])
    return result


def _times(matrices: Floats, vectors: Floats) -> Floats:
    result: Floats = (matrices @ vectors[:, :, None])[:, :, 0]
    return result
