"""Chooses the learning rates by leaving out whole pairs of a model and a GPU type, as it will have to predict them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from solvers.factors.machine import FactorLearner, FactorSample, LearningRates

FOLDS = 3
SEED = 0  # of the folds: the same samples are learned alike
TRIED = tuple(
    replace(LearningRates(), eta=eta, l2_factors=l2_factors, rank=rank)
    for rank in (3, 8)
    for eta in (0.1, 0.3)
    for l2_factors in (0.1, 1.0)
)


@dataclass(frozen=True)
class LearnedFactors:
    """A learner, and the root mean square of its errors on pairs left out, by target; None: too few pairs to tell."""

    learner: FactorLearner
    errors: tuple[float, ...] | None


def learn_factors(samples: Sequence[FactorSample], pair: tuple[str, str]) -> LearnedFactors:
    """Learns these samples. `pair`: the two categories whose combinations may be unmeasured."""
    keys = [tuple(sample.categories[kind] for kind in pair) for sample in samples]
    pairs = sorted(set(keys))
    order = np.random.default_rng(SEED).permutation(len(pairs))
    best, errors = LearningRates(), None
    for rates in TRIED if len(pairs) >= FOLDS else ():
        squares = []
        for fold in range(FOLDS):
            out = {pairs[at] for at in order[fold::FOLDS]}
            seen = [sample for sample, key in zip(samples, keys, strict=True) if key not in out]
            judged = [sample for sample, key in zip(samples, keys, strict=True) if key in out]
            learner = FactorLearner(len(samples[0].targets), rates).fit(seen)
            squares += [np.subtract(learner.predict(each), each.targets) ** 2 for each in judged]
        found = np.sqrt(np.mean(squares, axis=0))
        if errors is None or float(found @ found) < float(errors @ errors):
            best, errors = rates, found
    learner = FactorLearner(len(samples[0].targets), best).fit(samples)
    return LearnedFactors(learner, None if errors is None else tuple(errors.tolist()))
