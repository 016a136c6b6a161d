"""GP-LCB: measures the batch with the least lower confidence bound of the iteration time that may meet the SLO.

Curves are estimated by Gaussian processes over log2(batch), on the logarithm of the values: there, relative noise is
the same everywhere and latency is nearly linear.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from math import log, pi, sqrt
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from solvers.gaussian import Floats, GaussianFit, fit_gaussian, matern
from solvers.mudi.tuning.problem import BatchTrial, Tuning

FIRST_TRIALS = 6  # spread over the range, before there is an estimate
LAST_TRIALS = 4  # of the batch expected to be the answer, because an answer must have been measured
REFIT_TRIALS = 6  # the hyperparameters are chosen again after so many trials
WRONG_CHANCE = 0.1  # delta in beta_n
THEORY_OVER_PRACTICE = 5.0  # the proved beta_n explores too much; its authors (Srinivas et al.) divide it by this
MAY_MEET_DEVIATIONS = 1.0  # a batch whose latency less these standard deviations meets the SLO is worth a trial
MEETS_DEVIATIONS = 1.3  # a batch whose latency plus these meets the SLO is sure enough as an answer
STAYS_DEVIATIONS = 2.0  # likewise sure enough for the last trials, as one more will hardly rule it out
Flags: TypeAlias = NDArray[np.bool_]  # one for each batch from 1


class BatchTuner:
    """Chooses the next batch to try, and the best of those tried, from the trials so far."""

    def __init__(self, tuning: Tuning) -> None:
        self.tuning = tuning
        self.trials: list[BatchTrial] = []
        self._curves: tuple[TrainingCurve, TrainingCurve] | None = None
        self._allowed = np.ones(tuning.most_batch, dtype=np.bool_)
        if tuning.batches:
            self._allowed[:] = False
            self._allowed[[batch - 1 for batch in tuning.batches]] = True
        self._believed = 0  # the number of trials that the estimates are made from
        self._iteration: Belief
        self._latency: Belief

    def add(self, trials: Sequence[BatchTrial]) -> None:
        """Adds trials, from which the estimates are revised when they are needed next."""
        self.trials += trials

    @property
    def remaining(self) -> int:
        """The number of trials that are left."""
        return self.tuning.evaluations - len(self.trials)

    @property
    def iteration(self) -> Belief:
        """The estimate of the logarithm of the iteration time."""
        self._believe()
        return self._iteration

    @property
    def latency(self) -> Belief:
        """The estimate of the logarithm of the latency over the SLO."""
        self._believe()
        return self._latency

    def next(self) -> int:
        """Returns the batch to try next; there has to be a trial left."""
        tried = {trial.batch for trial in self.trials}
        if untried := [batch for batch in first_batches(self.tuning) if batch not in tried]:
            return untried[0]
        expected = self._predict_answer() if self.remaining <= LAST_TRIALS else None
        return self._least_bound() if expected is None else expected

    def best(self) -> int | None:
        """Returns the tried batch of least estimated iteration time that surely, else probably, meets the SLO."""
        tried = np.zeros(self.tuning.most_batch, dtype=np.bool_)
        tried[[trial.batch - 1 for trial in self.trials]] = True
        for deviations in (MEETS_DEVIATIONS, 0.0):
            candidates = tried & self.meets(deviations)
            if candidates.any():
                return self._fastest(candidates)
        return None

    def bounds(self) -> Floats:
        """Returns A(b) = mu - beta_n^1/2 sigma of the logarithm by batch (Mudi; Srinivas et al., theorem 1)."""
        n = len(self.trials) + 1
        beta = 2 * log(self.tuning.most_batch * n**2 * pi**2 / (6 * WRONG_CHANCE)) / THEORY_OVER_PRACTICE
        bounds: Floats = self.iteration.mean - sqrt(beta) * self.iteration.deviation
        return bounds

    def meets(self, deviations: float) -> Flags:
        """Marks the batches whose latency, this many standard deviations above the mean, still meets the SLO."""
        return self._allowed & (self.latency.mean + deviations * self.latency.deviation <= 0.0)

    def _least_bound(self) -> int:
        """Returns the batch of least bound among those that may meet the SLO; if none may, the one nearest to it."""
        possible = self.meets(-MAY_MEET_DEVIATIONS)
        if possible.any():
            return int(np.argmin(np.where(possible, self.bounds(), np.inf))) + 1
        nearest = self.latency.mean - MAY_MEET_DEVIATIONS * self.latency.deviation
        return int(np.argmin(np.where(self._allowed, nearest, np.inf))) + 1

    def _predict_answer(self) -> int | None:
        """Returns the batch that would be the answer if it were measured."""
        meets = self.meets(STAYS_DEVIATIONS)
        return self._fastest(meets) if meets.any() else None

    def _fastest(self, candidates: Flags) -> int:
        return int(np.argmin(np.where(candidates, self.iteration.mean, np.inf))) + 1

    def _believe(self) -> None:
        """Revises the estimates, if there are new trials."""
        if self._believed == len(self.trials):
            return
        self._revise()
        self._believed = len(self.trials)

    def _revise(self) -> None:
        batches = [trial.batch for trial in self.trials]
        iterations = [trial.measured.iteration_ms for trial in self.trials]
        latencies = [trial.measured.latency_ms / self.tuning.slo_ms for trial in self.trials]
        noise = self.tuning.noise
        if self._curves is None or len(self.trials) % REFIT_TRIALS == 0:
            self._curves = (
                likeliest_curve(batches, iterations, noise),
                likeliest_curve(batches, latencies, noise),
            )
        self._iteration = belief(batches, iterations, noise, self._curves[0], self.tuning.most_batch)
        self._latency = belief(batches, latencies, noise, self._curves[1], self.tuning.most_batch)


def first_batches(tuning: Tuning) -> list[int]:
    """Returns the first batches to try, evenly spaced over the doublings, or over the allowed ones."""
    steps = max(1, min(FIRST_TRIALS, tuning.evaluations) - 1)
    if tuning.batches:
        last = len(tuning.batches) - 1
        return sorted({tuning.batches[round(last * step / steps)] for step in range(steps + 1)})[: tuning.evaluations]
    return sorted({round(tuning.most_batch ** (step / steps)) for step in range(steps + 1)})[: tuning.evaluations]


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
