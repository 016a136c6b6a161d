"""Other predictors of latency from the same number of measurements, taken at random settings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.interpolate import LinearNDInterpolator, NearestNDInterpolator
from scipy.spatial import QhullError

from solvers.curves.measurement import Setting

Floats = NDArray[np.float64]
Baseline = Callable[[Sequence[Setting], Floats, Sequence[Setting]], Floats]  # milliseconds in, milliseconds out

TREES = 100


def nearest(known: Sequence[Setting], latencies: Floats, wanted: Sequence[Setting]) -> Floats:
    """Returns the latency of the nearest measured setting."""
    result: Floats = NearestNDInterpolator(_points(known), latencies)(_points(wanted))
    return result


def interpolation(known: Sequence[Setting], latencies: Floats, wanted: Sequence[Setting]) -> Floats:
    """Interpolates linearly between measured settings, and takes the nearest one beyond them."""
    beyond = nearest(known, latencies, wanted)
    try:
        between = LinearNDInterpolator(_points(known), latencies)(_points(wanted))
    except (QhullError, ValueError):  # fewer than three settings, or all on a line
        return beyond
    return np.where(np.isfinite(between), between, beyond)


def polynomial(known: Sequence[Setting], latencies: Floats, wanted: Sequence[Setting]) -> Floats:
    """Fits a quadratic of the logarithms, or a plane where there are too few measurements for that."""
    degree = 2 if len(known) > 6 else 1
    coefficients = np.linalg.lstsq(_terms(known, degree), np.log(latencies), rcond=None)[0]
    result: Floats = np.exp(_terms(wanted, degree) @ coefficients)
    return result


def forest(known: Sequence[Setting], latencies: Floats, wanted: Sequence[Setting]) -> Floats:
    """Lets scikit-learn's random forest predict the logarithm."""
    from sklearn.ensemble import RandomForestRegressor

    model: Any = RandomForestRegressor(TREES, random_state=0).fit(_points(known), np.log(latencies))
    result: Floats = np.exp(model.predict(_points(wanted)))
    return result


BASELINES: dict[str, Baseline] = {
    "random settings, linear interpolation": interpolation,
    "random settings, nearest": nearest,
    "random settings, polynomial": polynomial,
    "random settings, random forest": forest,
}


def _points(settings: Sequence[Setting]) -> Floats:
    return np.array([(np.log2(s.batch), np.log2(s.sm_percent)) for s in settings])


def _terms(settings: Sequence[Setting], degree: int) -> Floats:
    points = _points(settings)
    powers = [(i, j) for i in range(degree + 1) for j in range(degree + 1 - i)]
    return np.column_stack([points[:, 0] ** i * points[:, 1] ** j for i, j in powers])
