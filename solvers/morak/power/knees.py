"""Finds the knee of latency over SM%, where more SMs stop paying, by two least-squares lines (Morak, III-C)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from solvers.planning.problem import Curve

Numbers = NDArray[np.float64]
FLAT = 1e-9  # slopes that differ by less, relative to the curve's height per SM%, count as equal


@dataclass(frozen=True, slots=True)
class Knee:
    """The point (sm_percent, latency_ms) where the two lines meet, with their slopes and their error."""

    sm_percent: float
    latency_ms: float
    slope_before: float  # ms per SM%
    slope_after: float
    squared_error: float


def knee(curve: Curve) -> Knee | None:
    """Returns the joined pair of lines of least squared error, or None if the curve does not flatten after it."""
    if len(curve) < 3:
        return None
    x = np.array([point[0] for point in curve], dtype=np.float64)
    y = np.array([point[1] for point in curve], dtype=np.float64)
    best = min(_fits(x, y), key=lambda fit: (fit.squared_error, fit.sm_percent))
    if best.slope_before < best.slope_after - FLAT * float(np.abs(y).max()):
        return best
    return None


def _fits(x: Numbers, y: Numbers) -> list[Knee]:
    """Returns all candidates for the least squares: the best joint between two points lies where the two unconstrained
    lines meet; if they meet outside that gap, it is one of the gap's ends (Hudson, 1966)."""
    fits = [_fit_lines(x, y, float(joint)) for joint in x[1:-1]]
    for split in range(2, len(x) - 1):
        before, after = _line(x[:split], y[:split]), _line(x[split:], y[split:])
        if before[0] != after[0]:
            joint = (after[1] - before[1]) / (before[0] - after[0])
            if x[split - 1] < joint < x[split]:
                fits.append(_fit_lines(x, y, float(joint)))
    return fits


def _line(x: Numbers, y: Numbers) -> tuple[float, float]:
    """Returns slope and intercept of the least-squares line."""
    spread = x - x.mean()
    slope = float(spread @ y / (spread @ spread))
    return slope, float(y.mean() - slope * x.mean())


def _fit_lines(x: Numbers, y: Numbers, joint: float) -> Knee:
    """Fits two least-squares lines that meet at this SM% (Mudi's form: l0, k1 and k2 around the cut-off)."""
    columns = np.column_stack((np.ones_like(x), np.minimum(x - joint, 0.0), np.maximum(x - joint, 0.0)))
    (height, before, after), *_ = np.linalg.lstsq(columns, y, rcond=None)
    error = y - columns @ np.array([height, before, after])
    return Knee(joint, float(height), float(before), float(after), float(error @ error))


@lru_cache(maxsize=65536)
def share_at_knee(curve: Curve) -> int:
    """Returns the whole SM% to assign: the knee, rounded up. A curve without a knee gets the most measured SM% if
    latency still falls, else the least."""
    found = knee(curve)
    if found:
        return int(np.ceil(found.sm_percent - 1e-9))
    falls = curve[-1][1] < curve[0][1] * (1 - FLAT)
    return curve[-1][0] if falls else curve[0][0]
