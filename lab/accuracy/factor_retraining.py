"""Pairs of a model and a GPU type that are measured one after the other: when the factorization machine learns again.

Each pair is predicted before it counts (prequential): by a machine that is kept, by one that learns all pairs so far
whenever its running error passes THETA, and by one that does so after every pair, as `gpuwright profile predict` does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf, log

import numpy as np

from lab.accuracy.accuracy_row import AccuracyRow
from lab.accuracy.factor_baselines import PAIR
from solvers.factors.machine import FactorLearner, FactorSample

FIRST_PAIRS = 6  # that `profile predict` needs
# ln 1/0.7: what serves corrects a Profile by 0.7 to 1.5 times, so a prediction that misses by more stays wrong.
THETA = -log(0.7)
FEWEST_JUDGED = 3  # pairs since the last fit, before their error counts
AT_THETA = "at theta"
THETAS: Mapping[str, float] = {AT_THETA: THETA, "kept": inf, "every pair": 0.0}


@dataclass(frozen=True, slots=True)
class Course:
    """The mean square error over the pairs that came one after the other, and how often the machine learned again."""

    mean_square: float
    refits: int


def retrained(pairs: Sequence[Sequence[FactorSample]], theta: float) -> Course:
    """Returns the course of these pairs, each with its samples, in this order."""
    known = [sample for pair in pairs[:FIRST_PAIRS] for sample in pair]
    learner, refits = _fit(known), 0
    squares: list[float] = []
    since: list[float] = []  # squares since the last fit
    for pair in pairs[FIRST_PAIRS:]:
        since.append(float(np.mean([np.subtract(learner.predict(each), each.targets) ** 2 for each in pair])))
        squares.append(since[-1])
        known += pair
        if theta == 0.0 or (len(since) >= FEWEST_JUDGED and float(np.mean(since)) > theta**2):
            learner, refits, since = _fit(known), refits + 1, []
    return Course(float(np.mean(squares)), refits)


def retraining_row(what: str, data: str, samples: Sequence[FactorSample], seeds: int) -> AccuracyRow:
    """Returns the error of each way of learning again over pairs in random orders, one for each seed."""
    by_pair: dict[tuple[str, ...], list[FactorSample]] = {}
    for sample in samples:
        by_pair.setdefault(tuple(sample.categories[kind] for kind in PAIR), []).append(sample)
    pairs = [by_pair[key] for key in sorted(by_pair)]
    orders = [np.random.default_rng(seed).permutation(len(pairs)) for seed in range(seeds)]
    courses = {
        name: [retrained([pairs[at] for at in order], theta) for order in orders] for name, theta in THETAS.items()
    }
    errors = {name: float(np.mean([course.mean_square for course in found])) ** 0.5 for name, found in courses.items()}
    refits = ", ".join(f"{name} {np.mean([course.refits for course in found]):.3g}" for name, found in courses.items())
    judged = seeds * max(0, len(pairs) - FIRST_PAIRS)
    ours = errors.pop(AT_THETA)
    note = f"each pair predicted before it is learned, theta {THETA:.3f}; mean refits a course: {refits}"
    return AccuracyRow(what, data, judged, ours, errors, "ln", note)


def _fit(samples: Sequence[FactorSample]) -> FactorLearner:
    return FactorLearner(len(samples[0].targets)).fit(samples)
