"""Where more SMs stop paying: the knee of latency over SM%, by two straight lines of least squares (Morak, III-C)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from solvers.planning.problem import Curve

Numbers = NDArray[np.float64]
FLAT = 1e-9  # slopes nearer than this, relative to the curve's height per SM%, are one


@dataclass(frozen=True, slots=True)
class Knee:
    """The two lines meet at (sm_percent, latency_ms)."""

    sm_percent: float
    latency_ms: float
    slope_before: float  # ms per SM%
    slope_after: float
    squared_error: float


def knee(curve: Curve) -> Knee | None:
    """The joined pair of lines with the least squared error. None: one line says it all, or it is steeper behind."""
    if len(curve) < 3:
        return None
    x = np.array([point[0] for point in curve], dtype=np.float64)
    y = np.array([point[1] for point in curve], dtype=np.float64)
    best = min(_fits(x, y), key=lambda fit: (fit.squared_error, fit.sm_percent))
    if best.slope_before < best.slope_after - FLAT * float(np.abs(y).max()):
        return best
    return None


def _fits(x: Numbers, y: Numbers) -> list[Knee]:
    """Every candidate for the least squares: a joint between two points lies where their free lines meet; if those
    meet elsewhere, the best joint of this gap is one of its ends (Hudson, 1966)."""
    fits = [_joined_at(x, y, float(joint)) for joint in x[1:-1]]
    for left in range(2, len(x) - 1):
        before, after = _line(x[:left], y[:left]), _line(x[left:], y[left:])
        if before[0] != after[0]:
            joint = (after[1] - before[1]) / (before[0] - after[0])
            if x[left - 1] < joint < x[left]:
                fits.append(_joined_at(x, y, float(joint)))
    return fits


def _line(x: Numbers, y: Numbers) -> tuple[float, float]:
    """Slope and intercept."""
    spread = x - x.mean()
    slope = float(spread @ y / (spread @ spread))
    return slope, float(y.mean() - slope * x.mean())


def _joined_at(x: Numbers, y: Numbers, joint: float) -> Knee:
    """The two lines of least squares that meet at this SM% (Mudi's form: l0, k1 and k2 around the cut-off)."""
    columns = np.column_stack((np.ones_like(x), np.minimum(x - joint, 0.0), np.maximum(x - joint, 0.0)))
    (height, before, after), *_ = np.linalg.lstsq(columns, y, rcond=None)
    error = y - columns @ np.array([height, before, after])
    return Knee(joint, float(height), float(before), float(after), float(error @ error))


def share_at_knee(curve: Curve) -> int:
    """The whole SM% to give: the knee, rounded up. Without one: all that was measured if more still helps, else the
    least."""
    found = knee(curve)
    if found:
        return int(np.ceil(found.sm_percent - 1e-9))
    falls = curve[-1][1] < curve[0][1] * (1 - FLAT)
    return curve[-1][0] if falls else curve[0][0]
