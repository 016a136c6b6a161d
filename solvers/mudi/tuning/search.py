"""GP-LCB: measure where the lower confidence bound of the iteration time is least, among batches that may do."""

from __future__ import annotations

from collections.abc import Sequence
from math import log, pi, sqrt

import numpy as np

from solvers.mudi.tuning.belief import Belief, Floats, TrainingCurve, belief, likeliest_course, linear_algebra
from solvers.mudi.tuning.problem import BatchTrial, Measure, Tuning

FIRST_TRIALS = 6  # spread over the range, before anything is believed
LAST_TRIALS = 4  # of the batch that would be the answer: it must have been measured
COURSE_EVERY = 6  # trials after which the curves' courses are chosen anew
WRONG_CHANCE = 0.1  # delta in beta_n
THEORY_OVER_PRACTICE = 5.0  # beta_n as proved explores too much; its authors (Srinivas et al.) divide it by this
MAY_MEET = 1.0  # standard deviations: believed latency less these under the SLO is worth a trial
MEETS = 1.3  # standard deviations: believed latency plus these under the SLO is good enough to answer with
STAYS = 2.0  # likewise, good enough to be tried as the answer: one more trial will hardly rule it out


class Beliefs:
    """What is believed of iteration time and of latency over SLO; revised with each trial."""

    def __init__(self, tuning: Tuning) -> None:
        self.tuning = tuning
        self.trials: list[BatchTrial] = []
        self._courses: tuple[TrainingCurve, TrainingCurve] | None = None
        self._threads = linear_algebra()
        self.iteration: Belief
        self.latency: Belief

    def add(self, trials: Sequence[BatchTrial]) -> None:
        self.trials += trials
        # One thread: sums come out alike on any machine, and waking a second one takes longer than they do.
        with self._threads.limit(limits=1, user_api="blas"):
            self._revise()

    def _revise(self) -> None:
        batches = [trial.batch for trial in self.trials]
        iterations = [trial.measured.iteration_ms for trial in self.trials]
        latencies = [trial.measured.latency_ms / self.tuning.slo_ms for trial in self.trials]
        noise = self.tuning.noise
        if self._courses is None or len(self.trials) % COURSE_EVERY == 0:
            self._courses = (
                likeliest_course(batches, iterations, noise),
                likeliest_course(batches, latencies, noise),
            )
        self.iteration = belief(batches, iterations, noise, self._courses[0], self.tuning.most_batch)
        self.latency = belief(batches, latencies, noise, self._courses[1], self.tuning.most_batch)

    def bounds(self) -> Floats:
        """A(b) = mu - beta_n^1/2 sigma, of the logarithm (Mudi; Srinivas et al., theorem 1)."""
        n = len(self.trials) + 1
        beta = 2 * log(self.tuning.most_batch * n**2 * pi**2 / (6 * WRONG_CHANCE)) / THEORY_OVER_PRACTICE
        bounds: Floats = self.iteration.mean - sqrt(beta) * self.iteration.deviation
        return bounds

    def meets(self, deviations: float) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """Which batches are believed to meet the SLO even this many standard deviations above what is expected."""
        return np.asarray(self.latency.mean + deviations * self.latency.deviation <= 0.0)


def first_batches(tuning: Tuning) -> list[int]:
    """Evenly over the doublings."""
    steps = max(1, min(FIRST_TRIALS, tuning.evaluations) - 1)
    return sorted({round(tuning.most_batch ** (step / steps)) for step in range(steps + 1)})[: tuning.evaluations]


def search(tuning: Tuning, measure: Measure) -> Beliefs:
    """Every evaluation spent, and what is believed in the end."""
    beliefs = Beliefs(tuning)
    beliefs.add([BatchTrial(batch, measure(batch)) for batch in first_batches(tuning)])
    while (left := tuning.evaluations - len(beliefs.trials)) > 0:
        expected = expected_batch(beliefs) if left <= LAST_TRIALS else None
        batch = next_batch(beliefs) if expected is None else expected
        beliefs.add([BatchTrial(batch, measure(batch))])
    return beliefs


def next_batch(beliefs: Beliefs) -> int:
    """The batch of least bound that may meet the SLO; where none may, the one nearest to meeting it."""
    may = beliefs.meets(-MAY_MEET)
    if not may.any():
        return int(np.argmin(beliefs.latency.mean - MAY_MEET * beliefs.latency.deviation)) + 1
    return int(np.argmin(np.where(may, beliefs.bounds(), np.inf))) + 1


def expected_batch(beliefs: Beliefs) -> int | None:
    """The batch that would be the answer if it had been measured."""
    meets = beliefs.meets(STAYS)
    return int(np.argmin(np.where(meets, beliefs.iteration.mean, np.inf))) + 1 if meets.any() else None


def measured_batch(beliefs: Beliefs) -> int | None:
    """The measured batch of least believed iteration time; sure of the SLO if one is, else expected to meet it."""
    tried = np.zeros(beliefs.tuning.most_batch, dtype=np.bool_)
    tried[[trial.batch - 1 for trial in beliefs.trials]] = True
    for deviations in (MEETS, 0.0):
        candidates = tried & beliefs.meets(deviations)
        if candidates.any():
            return int(np.argmin(np.where(candidates, beliefs.iteration.mean, np.inf))) + 1
    return None
