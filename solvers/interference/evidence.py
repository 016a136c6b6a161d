"""The evidence for a shape of factors: how likely the observations are, whatever the parameters and the noise are.

It compares shapes where there are too few mixes to leave any out: a shape that needs much noise to explain the
observations loses, and so does one that could have explained anything (Laplace's approximation)."""

from __future__ import annotations

from collections.abc import Sequence
from math import log

import numpy as np

from solvers.interference.candidate import Floats
from solvers.interference.factor_layout import FactorLayout, FactorShape
from solvers.interference.factors import LEAST_NOISE, FactorData, layout_and_data, predicted_logs, search
from solvers.interference.observation import SlowdownObservation

NOISES = np.geomspace(LEAST_NOISE, 1.0, 9).tolist()  # standard deviations of a logarithm: all are as likely before
ROUNDS = 300
STEP = 1e-5  # of a parameter, for slopes


def evidence_weights(
    observations: Sequence[SlowdownObservation], shapes: Sequence[FactorShape], levels: Sequence[int] = ()
) -> Floats:
    """Returns how likely each shape is; they add up to 1."""
    logs = np.array([_log_evidence(observations, shape, levels) for shape in shapes])
    weights = np.exp(logs - logs.max())
    found: Floats = weights / weights.sum()
    return found


def _log_evidence(observations: Sequence[SlowdownObservation], shape: FactorShape, levels: Sequence[int]) -> float:
    layout, data = layout_and_data(observations, shape, levels)
    x, logs = None, []
    for noise in NOISES:  # from the least, at which factors differ most: each search starts where the last one ended
        x, loss = search(layout, data, noise, ROUNDS, x)
        logs.append(_log_evidence_at(x, loss, layout, data, noise))
    most = max(logs)
    return most + float(np.log(np.exp(np.array(logs) - most).mean()))


def _log_evidence_at(x: Floats, loss: float, layout: FactorLayout, data: FactorData, noise: float) -> float:
    """Returns the logarithm of likelihood x prior over all parameters, but for what is the same for all shapes."""
    prior = layout.prior_weights()
    middle = predicted_logs(x, layout, data)
    slopes = np.array([predicted_logs(x + STEP * each, layout, data) - middle for each in np.eye(len(x))]) / STEP
    curvature = (slopes * data.weights) @ slopes.T / noise**2 + np.diag(prior)
    volume = float(np.log(prior).sum() - np.linalg.slogdet(curvature)[1])
    return (-loss / noise**2 + volume) / 2 - len(data.logs) * log(noise)
