"""Factorization machines (OLTunes, eq. 2) and their FTRL-Proximal updates, compiled.

A sample is a row of feature numbers and values; an unused place has the value 0. The state of a weight is its (z, n):
the weight follows from it, so nothing else is kept."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from solvers.compiled import njit

Array: TypeAlias = Any  # numba knows the exact types from the signatures


@njit("float64(float64, float64, float64, float64, float64, float64)", inner=True)
def weight(z: float, n: float, eta: float, zeta: float, l1: float, l2: float) -> float:
    """Returns the weight of a state (OLTunes, Algorithm 1, lines 8 to 11)."""
    if abs(z) <= l1:
        return 0.0
    sign = 1.0 if z > 0 else -1.0
    found: float = -(z - sign * l1) / ((zeta + n**0.5) / eta + l2)
    return found


@njit("float64(int64[::1], float64[::1], float64[:, ::1], float64)")
def predict(places: Array, values: Array, weights: Array, bias: float) -> float:
    """Returns eq. 2 in linear time: columns of `weights` are w and then V."""
    total = bias
    for at in range(len(places)):
        total += weights[places[at], 0] * values[at]
    for factor in range(1, weights.shape[1]):
        once = 0.0
        squares = 0.0
        for at in range(len(places)):
            part = weights[places[at], factor] * values[at]
            once += part
            squares += part * part
        total += 0.5 * (once * once - squares)
    return total


@njit(
    "void(int64[:, ::1], float64[:, ::1], float64[::1], int64[::1], float64[:, ::1], float64[:, ::1], "
    "float64[:, ::1], float64[::1], float64[::1])",
    makes_arrays=True,
)
def learn(
    places: Array,
    values: Array,
    targets: Array,
    order: Array,
    z: Array,
    n: Array,
    weights: Array,
    bias: Array,
    rates: Array,
) -> None:
    """Updates the state by the samples in this order.

    `bias`: its value, z and n. `rates`: eta, zeta, l1 and l2 of w, l2 of V."""
    eta, zeta, l1, l2, l2_factors = rates[0], rates[1], rates[2], rates[3], rates[4]
    width, columns = places.shape[1], weights.shape[1]
    sums = np.zeros(columns)
    for sample in order:
        found = bias[0]
        for at in range(width):
            found += weights[places[sample, at], 0] * values[sample, at]
        for factor in range(1, columns):
            sums[factor] = 0.0
            squares = 0.0
            for at in range(width):
                part = weights[places[sample, at], factor] * values[sample, at]
                sums[factor] += part
                squares += part * part
            found += 0.5 * (sums[factor] * sums[factor] - squares)
        error = found - targets[sample]
        step = ((bias[2] + error * error) ** 0.5 - bias[2] ** 0.5) / eta
        bias[1] += error - step * bias[0]
        bias[2] += error * error
        bias[0] = weight(bias[1], bias[2], eta, zeta, 0.0, 0.0)
        for at in range(width):
            value = values[sample, at]
            if value == 0.0:
                continue
            place = places[sample, at]
            for factor in range(columns):
                now = weights[place, factor]
                slope = error * value
                if factor > 0:
                    slope *= sums[factor] - now * value
                more = slope * slope
                step = ((n[place, factor] + more) ** 0.5 - n[place, factor] ** 0.5) / eta
                z[place, factor] += slope - step * now
                n[place, factor] += more
                if factor > 0:
                    weights[place, factor] = weight(z[place, factor], n[place, factor], eta, zeta, 0.0, l2_factors)
                else:
                    weights[place, factor] = weight(z[place, factor], n[place, factor], eta, zeta, l1, l2)
