"""Linear factors of models never measured beside others, predicted from their traits.

What was measured is fitted as ever; the logarithms of a stranger's sensitivities and pressures follow from models
whose traits are alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from lab.interference.traits import Traits
from solvers.interference import factors
from solvers.interference.candidate import Floats
from solvers.interference.factor_layout import FactorShape
from solvers.interference.factors import FittedFactors
from solvers.interference.kernel_regression import fit_kernel
from solvers.interference.observation import SlowdownObservation


def fit_scalar(observations: Sequence[SlowdownObservation], traits: Traits) -> FittedFactors:
    """Fits the product's formula."""
    return _fit(observations, traits, factors.ONE_FACTOR)


def fit_two_linear_factors(observations: Sequence[SlowdownObservation], traits: Traits) -> FittedFactors:
    """Fits two factors; a stranger may press on the one and not on the other."""
    return _fit(observations, traits, factors.TWO_FACTORS)


def _fit(observations: Sequence[SlowdownObservation], traits: Traits, shape: FactorShape) -> FittedFactors:
    fitted = factors.fit(observations, shape)
    layout = fitted.layout
    strangers = sorted(traits.numbers.keys() - set(layout.models))
    known, asked = (np.array([traits.numbers[m] for m in models], float) for models in (layout.models, strangers))
    kin = [traits.family(model) for model in layout.models]
    both = []
    for second in (0, 1):
        logs = layout.factors(fitted.x, second)  # [SM%, model, factor]
        values = logs.transpose(1, 0, 2).reshape(len(layout.models), -1)
        regression = fit_kernel(known, values, kin)
        predicted = [regression.predict(each).reshape(len(layout.levels), 1, -1) for each in asked]
        both.append(np.concatenate((logs, *predicted), axis=1))
    wider = replace(layout, models=(*layout.models, *strangers))
    zeros = np.zeros(1 + len(wider.models) * shape.rank)  # all of a factor stands in its values by SM%
    rest: Floats = fitted.x[layout.exponents_at :]
    return FittedFactors(wider, np.concatenate((zeros, both[0].ravel(), zeros, both[1].ravel(), rest)))
