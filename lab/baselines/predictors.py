"""Predictors that OLTunes compares its own with (4.1.2): matrix factorization and random forest regression."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from solvers.factors.machine import FactorSample
from solvers.interference.candidate import Floats

RANK, RIDGE, ROUNDS = 4, 0.1, 30
TREES = 100

Predict = Callable[[FactorSample], Sequence[float]]


def matrix(samples: Sequence[FactorSample]) -> Predict:
    """Factors the matrix of models by configurations in turns of ridge regressions, as recommenders do."""
    models = {model: at for at, model in enumerate(sorted({each.categories["model"] for each in samples}))}
    places = {place: at for at, place in enumerate(sorted({_configuration(each) for each in samples}))}
    targets = np.array([each.targets for each in samples])
    rows = np.array([models[each.categories["model"]] for each in samples])
    columns = np.array([places[_configuration(each)] for each in samples])
    middle = targets.mean(0)
    draw = np.random.default_rng(0)
    found = []
    for target in range(targets.shape[1]):
        left, right = draw.normal(0, 0.1, (len(models), RANK)), draw.normal(0, 0.1, (len(places), RANK))
        wanted = targets[:, target] - middle[target]
        for _ in range(ROUNDS):
            left = _ridge(rows, right[columns], wanted, len(models))
            right = _ridge(columns, left[rows], wanted, len(places))
        found.append((left, right))

    def predict(sample: FactorSample) -> Sequence[float]:
        row, column = models.get(sample.categories["model"]), places.get(_configuration(sample))
        if row is None or column is None:
            return [float(each) for each in middle]
        return [float(middle[at] + left[row] @ right[column]) for at, (left, right) in enumerate(found)]

    return predict


def _ridge(groups: Floats, factors: Floats, wanted: Floats, count: int) -> Floats:
    found = np.zeros((count, RANK))
    for group in range(count):
        mine = groups == group
        table = factors[mine]
        found[group] = np.linalg.solve(table.T @ table + RIDGE * np.eye(RANK), table.T @ wanted[mine])
    return found


def _configuration(sample: FactorSample) -> tuple[str, ...]:
    return tuple(which for kind, which in sorted(sample.categories.items()) if kind not in ("model", "family"))


def forest(samples: Sequence[FactorSample]) -> Predict:
    """Grows a random forest on the same features: categories one-hot, numbers as they are."""
    from sklearn.ensemble import RandomForestRegressor  # a second to import

    features = sorted({item for each in samples for item in each.categories.items()})
    numbers = sorted({kind for each in samples for kind in each.numbers})

    def row(sample: FactorSample) -> list[float]:
        hot = [float(sample.categories.get(kind) == which) for kind, which in features]
        return hot + [sample.numbers[kind] for kind in numbers]

    trees = RandomForestRegressor(TREES, random_state=0)
    targets = np.array([each.targets for each in samples])
    trees.fit([row(each) for each in samples], targets if targets.shape[1] > 1 else targets[:, 0])
    return lambda sample: [float(each) for each in np.ravel(trees.predict([row(sample)]))]
