"""GP-LCB: measures the batch with the least lower confidence bound of the iteration time that may meet the SLO."""

from __future__ import annotations

from collections.abc import Sequence
from math import log, pi, sqrt

import numpy as np

from solvers.mudi.tuning.belief import Belief, Floats, TrainingCurve, belief, likeliest_curve, linear_algebra
from solvers.mudi.tuning.problem import BatchTrial, Measure, Tuning

FIRST_TRIALS = 6  # spread over the range, before there is an estimate
LAST_TRIALS = 4  # of the batch expected to be the answer, because an answer must have been measured
REFIT_TRIALS = 6  # the hyperparameters are chosen again after so many trials
WRONG_CHANCE = 0.1  # delta in beta_n
THEORY_OVER_PRACTICE = 5.0  # the proved beta_n explores too much; its authors (Srinivas et al.) divide it by this
MAY_MEET = 1.0  # standard deviations: a batch whose latency less these meets the SLO is worth a trial
MEETS = 1.3  # standard deviations: a batch whose latency plus these meets the SLO is sure enough as an answer
STAYS = 2.0  # standard deviations: likewise sure enough to be tried last, as one more trial will hardly rule it out


class Beliefs:
    """The estimates of the iteration time and of latency over SLO, revised with each trial."""

    def __init__(self, tuning: Tuning) -> None:
        self.tuning = tuning
        self.trials: list[BatchTrial] = []
        self._curves: tuple[TrainingCurve, TrainingCurve] | None = None
        self._threads = linear_algebra()
        self.iteration: Belief
        self.latency: Belief

    def add(self, trials: Sequence[BatchTrial]) -> None:
        self.trials += trials
        # One thread gives the same sums on any machine, and waking a second one takes longer than the sums.
        with self._threads.limit(limits=1, user_api="blas"):
            self._revise()

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
        self.iteration = belief(batches, iterations, noise, self._curves[0], self.tuning.most_batch)
        self.latency = belief(batches, latencies, noise, self._curves[1], self.tuning.most_batch)

    def bounds(self) -> Floats:
        """Returns A(b) = mu - beta_n^1/2 sigma, of the logarithm (Mudi; Srinivas et al., theorem 1)."""
        n = len(self.trials) + 1
        beta = 2 * log(self.tuning.most_batch * n**2 * pi**2 / (6 * WRONG_CHANCE)) / THEORY_OVER_PRACTICE
        bounds: Floats = self.iteration.mean - sqrt(beta) * self.iteration.deviation
        return bounds

    def meets(self, deviations: float) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """Marks the batches whose latency, this many standard deviations above the mean, still meets the SLO."""
        return np.asarray(self.latency.mean + deviations * self.latency.deviation <= 0.0)


def first_batches(tuning: Tuning) -> list[int]:
    """Returns the first batches to try, evenly spaced over the doublings."""
    steps = max(1, min(FIRST_TRIALS, tuning.evaluations) - 1)
    return sorted({round(tuning.most_batch ** (step / steps)) for step in range(steps + 1)})[: tuning.evaluations]


def search(tuning: Tuning, measure: Measure) -> Beliefs:
    """Spends every evaluation and returns the final estimates."""
    beliefs = Beliefs(tuning)
    beliefs.add([BatchTrial(batch, measure(batch)) for batch in first_batches(tuning)])
    while (remaining := tuning.evaluations - len(beliefs.trials)) > 0:
        expected = expected_batch(beliefs) if remaining <= LAST_TRIALS else None
        batch = next_batch(beliefs) if expected is None else expected
        beliefs.add([BatchTrial(batch, measure(batch))])
    return beliefs


def next_batch(beliefs: Beliefs) -> int:
    """Returns the batch of least bound among those that may meet the SLO; if none may, the one nearest to it."""
    possible = beliefs.meets(-MAY_MEET)
    if not possible.any():
        return int(np.argmin(beliefs.latency.mean - MAY_MEET * beliefs.latency.deviation)) + 1
    return int(np.argmin(np.where(possible, beliefs.bounds(), np.inf))) + 1


def expected_batch(beliefs: Beliefs) -> int | None:
    """Returns the batch that would be the answer if it were measured."""
    meets = beliefs.meets(STAYS)
    return int(np.argmin(np.where(meets, beliefs.iteration.mean, np.inf))) + 1 if meets.any() else None


def measured_batch(beliefs: Beliefs) -> int | None:
    """Returns the measured batch of least estimated iteration time that surely, else probably, meets the SLO."""
    tried = np.zeros(beliefs.tuning.most_batch, dtype=np.bool_)
    tried[[trial.batch - 1 for trial in beliefs.trials]] = True
    for deviations in (MEETS, 0.0):
        candidates = tried & beliefs.meets(deviations)
        if candidates.any():
            return int(np.argmin(np.where(candidates, beliefs.iteration.mean, np.inf))) + 1
    return None
