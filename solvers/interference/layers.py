"""Pressure and sensitivity of a job never measured beside others, from its layers (Mudi, M2).

Kernel regression on logarithms: jobs are alike where the counts of their layers by kind are alike, relative to how
much those differ among the jobs that were measured. How far likeness reaches is chosen by leaving one job out; the
widest reach is the mean of all. `planned` is at the 0.9 quantile of the errors left out: a promise must hold beside
a job that is worse than jobs like it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from solvers.interference.candidate import Floats

LEAST_JOBS = 3  # measured jobs with layers, below which nothing is predicted
REACHES = (0.25, 0.5, 1.0, 2.0, 100.0)  # in standard deviations of a logarithm of a count
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
    spread = np.where(table.std(0) > 0, table.std(0), 1.0)
    values = np.log(np.maximum([each.values for each in known], SMALLEST))
    gaps = ((table[:, None] - table[None]) / spread) ** 2
    errors = [_left_out(gaps.mean(2), values, reach) for reach in REACHES]
    best = int(np.argmin([float(np.abs(each).mean()) for each in errors]))
    expected = _weigh((((table - asked) / spread) ** 2).mean(1)[None], values, REACHES[best])[0]
    above = np.quantile(-errors[best], QUANTILE, axis=0)
    return PredictedValues(
        tuple(np.exp(expected).tolist()),
        tuple(np.exp(expected + np.maximum(above, 0.0)).tolist()),
        float(np.abs(errors[best]).mean()),
        len(known),
    )


def _left_out(gaps: Floats, values: Floats, reach: float) -> Floats:
    """Returns predicted - measured logarithms of each job, from all others."""
    hidden = gaps.copy()
    np.fill_diagonal(hidden, np.inf)
    return _weigh(hidden, values, reach) - values


def _weigh(gaps: Floats, values: Floats, reach: float) -> Floats:
    nearest = gaps.min(1, keepdims=True)
    weights = np.exp(-0.5 * (gaps - nearest) / reach**2)
    found: Floats = weights @ values / weights.sum(1, keepdims=True)
    return found
