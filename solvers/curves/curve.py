"""The latency of a model over batch, SM% and clock, fitted to measurements, with its uncertainty."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp
from statistics import NormalDist

import numpy as np

from solvers.curves.measurement import Measurement, Setting
from solvers.curves.process import Process, fit_process


@dataclass(frozen=True)
class LatencyCurve:
    """A fitted curve; `error` is the mean share by which it missed each measurement, predicted from the others."""

    method: str
    error: float
    _process: Process
    _scale: float  # by how much left-out errors exceed the deviations that the process states

    def mean_ms(self, batch: int, sm_percent: float, clock_mhz: int) -> float:
        mean, _ = self._process.predict([Setting(batch, sm_percent, clock_mhz)])
        return exp(float(mean[0]))

    def quantile_ms(self, batch: int, sm_percent: float, clock_mhz: int, quantile: float) -> float:
        """Returns what the latency stays below with the probability `quantile`."""
        if not 0.0 < quantile < 1.0:
            raise ValueError(f"quantile {quantile:g} is outside 0..1")
        mean, deviation = self._process.predict([Setting(batch, sm_percent, clock_mhz)])
        return exp(float(mean[0]) + self._scale * float(deviation[0]) * NormalDist().inv_cdf(quantile))


def fit(measurements: Sequence[Measurement], highest_clock_mhz: int) -> LatencyCurve:
    """Fits a curve to two or more measurements."""
    if len(measurements) < 2:
        raise ValueError(f"{len(measurements)} measurements are too few for a curve; 2 are needed")
    process = fit_process(measurements, highest_clock_mhz)
    error = float(np.mean(np.abs(np.expm1(-process.left_out))))
    scale = float(np.sqrt(np.mean((process.left_out / process.left_out_deviation) ** 2)))
    return LatencyCurve("process", error, process, max(scale, 1.0))


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """The latency at one batch and share: its mean, and what it stays below with a probability of 0.9."""

    mean_ms: float
    q90_ms: float


def table(
    curve: LatencyCurve, batches: Sequence[int], sm_percents: Sequence[float], clock_mhz: int
) -> dict[int, dict[float, CurvePoint]]:
    """Returns the curve as a table of a profile, in which latency never rises with SM%."""
    rows: dict[int, dict[float, CurvePoint]] = {}
    for batch in batches:
        mean, upper = float("inf"), float("inf")
        row = {}
        for share in sorted(sm_percents):
            mean = min(mean, curve.mean_ms(batch, share, clock_mhz))
            upper = max(mean, min(upper, curve.quantile_ms(batch, share, clock_mhz, 0.9)))
            row[share] = CurvePoint(mean, upper)
        rows[batch] = row
    return rows


def deviations(measurements: Sequence[Measurement], settings: Sequence[Setting], highest_clock_mhz: int) -> list[float]:
    """Returns how unsure the curve is at each setting, as the standard deviation of log(latency)."""
    _, deviation = fit_process(measurements, highest_clock_mhz).predict(settings)
    return [float(value) for value in deviation]
