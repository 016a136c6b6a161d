"""Chooses the learning rates by leaving out whole pairs of a model and a GPU type, as it will have to predict them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from solvers.factors.machine import FactorLearner, FactorSample, LearningRates

FOLDS = 3
TRIED = tuple(
    replace(LearningRates(), eta=eta, l2_factors=l2_factors, rank=rank)
    for rank in (3, 8)
    for eta in (0.1, 0.3)
    for l2_factors in (0.1, 1.0)
)


def learned(samples: Sequence[FactorSample], pair: tuple[str, str], theta: float = 0.5, seed: int = 0) -> FactorLearner:
    """Returns a learner of these samples. `pair`: the two categories whose combinations may be unmeasured."""
    keys = [tuple(sample.categories[kind] for kind in pair) for sample in samples]
    pairs = sorted(set(keys))
    order = np.random.default_rng(seed).permutation(len(pairs))
    best, least = LearningRates(), float("inf")
    for rates in TRIED if len(pairs) >= FOLDS else ():
        error = 0.0
        for fold in range(FOLDS):
            out = {pairs[at] for at in order[fold::FOLDS]}
            seen = [sample for sample, key in zip(samples, keys, strict=True) if key not in out]
            judged = [sample for sample, key in zip(samples, keys, strict=True) if key in out]
            learner = FactorLearner(len(samples[0].targets), rates, theta, seed).fit(seen)
            error += sum(float(np.sum(np.subtract(learner.predict(each), each.targets) ** 2)) for each in judged)
        if error < least:
            best, least = rates, error
    return FactorLearner(len(samples[0].targets), best, theta, seed).fit(samples)
