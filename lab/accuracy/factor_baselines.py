"""The baselines of the factorization machine: matrix factorization, a random forest, the nearest entry."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lab.baselines.predictors import Predict, forest, matrix
from solvers.factors.machine import FactorSample

PAIR = ("model", "gpu type")


def nearest(samples: Sequence[FactorSample]) -> Predict:
    """Takes the entry with most categories alike, the model's first, then nearest in all numbers."""

    def predict(sample: FactorSample) -> Sequence[float]:
        def distance(entry: FactorSample) -> tuple[bool, int, float]:
            other = entry.categories["model"] != sample.categories["model"]
            differing = sum(entry.categories.get(kind) != which for kind, which in sample.categories.items())
            return other, differing, sum(abs(entry.numbers[kind] - number) for kind, number in sample.numbers.items())

        return min(samples, key=distance).targets

    return predict


BASELINES: dict[str, Callable[[Sequence[FactorSample]], Predict]] = {
    "matrix": matrix,
    "forest": forest,
    "nearest": nearest,
}
