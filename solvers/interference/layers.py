"""Pressure and sensitivity of a job never measured beside others, from its layers (Mudi, M2).

Kernel regression on logarithms: jobs are alike where the counts of their layers by kind are alike. `planned` is at the
0.9 quantile of the errors left out: a promise must hold beside a job that is worse than jobs like it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from solvers.interference.kernel_regression import fit_kernel

LEAST_JOBS = 3  # measured jobs with layers, below which nothing is predicted
QUANTILE = 0.9
SMALLEST = 1e-3  # of a pressure or sensitivity, so that it has a logarithm


@dataclass(frozen=True, slots=True)
class LayeredValues:
    """A job's layers by kind, and values that were measured or declared for it."""

    layers: Mapping[str, int]
    values: Sequence[float]


@dataclass(frozen=True, slots=True)
class PredictedValues:
    """Values expected, and their quantile for planning; `error` is the mean left-out error of a logarithm."""

    expected: tuple[float, ...]
    planned: tuple[float, ...]
    error: float
    jobs: int


def predict_from_layers(known: Sequence[LayeredValues], layers: Mapping[str, int]) -> PredictedValues | None:
    """Returns the values of a job with these layers, or None where too few jobs are known."""
    if len(known) < LEAST_JOBS:
        return None
    kinds = sorted({kind for each in known for kind in each.layers} | set(layers))
    table = np.array([[np.log1p(each.layers.get(kind, 0)) for kind in kinds] for each in known])
    asked = np.array([np.log1p(layers.get(kind, 0)) for kind in kinds])
    values = np.log(np.maximum([each.values for each in known], SMALLEST))
    regression = fit_kernel(table, values, [str(number) for number in range(len(known))])
    expected = regression.predict(asked)
    above = np.quantile(-regression.left_out, QUANTILE, axis=0)
    return PredictedValues(
        tuple(np.exp(expected).tolist()),
        tuple(np.exp(expected + np.maximum(above, 0.0)).tolist()),
        float(np.abs(regression.left_out).mean()),
        len(known),
    )
