"""The latency of a model over batch, SM% and clock, fitted to measurements, with its uncertainty."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp
from statistics import NormalDist

import numpy as np

from solvers.curves.candidates import CANDIDATES, CurveCandidate, best_candidate
from solvers.curves.measurement import Measurement, Setting
from solvers.curves.observations import observations, places

LEAST_MEASUREMENTS = 2


@dataclass(frozen=True)
class LatencyCurve:
    """A fitted curve; `error` is the mean share by which it missed each measurement, predicted from the others."""

    method: str
    error: float
    highest_clock_mhz: int
    _candidate: CurveCandidate

    def mean_ms(self, batch: int, sm_percent: float, clock_mhz: int) -> float:
        mean, _ = self.predict([Setting(batch, sm_percent, clock_mhz)])
        return exp(mean[0])

    def quantile_ms(self, batch: int, sm_percent: float, clock_mhz: int, quantile: float) -> float:
        """Returns what one more measurement would stay below with the probability `quantile`."""
        if not 0.0 < quantile < 1.0:
            raise ValueError(f"quantile {quantile:g} is outside 0..1")
        mean, deviation = self.predict([Setting(batch, sm_percent, clock_mhz)])
        return exp(mean[0] + deviation[0] * NormalDist().inv_cdf(quantile))

    def predict(self, settings: Sequence[Setting]) -> tuple[list[float], list[float]]:
        """Returns mean and deviation of log(latency) at each setting."""
        found = self._candidate.predict(places(settings, self.highest_clock_mhz))
        return [float(value) for value in found.mean], [float(value) for value in found.deviation]


def fit(measurements: Sequence[Measurement], highest_clock_mhz: int, method: str | None = None) -> LatencyCurve:
    """Fits a curve to two or more measurements, by the method that predicts left-out ones best unless one is named."""
    if len(measurements) < LEAST_MEASUREMENTS:
        required = f"{LEAST_MEASUREMENTS} are needed"
        raise ValueError(f"{len(measurements)} measurements are too few for a curve; {required}")
    if method is not None and method not in CANDIDATES:
        raise ValueError(f"method {method} is not one of {', '.join(CANDIDATES)}")
    observed = observations(measurements, highest_clock_mhz)
    candidate = best_candidate(observed) if method is None else CANDIDATES[method](observed)
    errors, _ = candidate.left_out
    return LatencyCurve(candidate.name, float(np.mean(np.abs(np.expm1(-errors)))), highest_clock_mhz, candidate)


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """The latency at one batch and share: its mean, and what it stays below with a probability of 0.9."""

    mean_ms: float
    q90_ms: float


def table(
    curve: LatencyCurve, batches: Sequence[int], sm_percents: Sequence[float], clock_mhz: int
) -> dict[int, dict[float, CurvePoint]]:
    """Returns the curve as a table of a profile, in which latency never rises with SM%."""
    shares = sorted(sm_percents)
    upwards = NormalDist().inv_cdf(0.9)
    rows: dict[int, dict[float, CurvePoint]] = {}
    for batch in batches:
        means, deviations = curve.predict([Setting(batch, share, clock_mhz) for share in shares])
        mean, upper = float("inf"), float("inf")
        rows[batch] = {}
        for share, middle, deviation in zip(shares, means, deviations, strict=True):
            mean = min(mean, exp(middle))
            upper = max(mean, min(upper, exp(middle + upwards * deviation)))
            rows[batch][share] = CurvePoint(mean, upper)
    return rows


def clock_exponent(
    curve: LatencyCurve, batches: Sequence[int], sm_percents: Sequence[float], lowest_clock_mhz: int
) -> float:
    """Returns the exponent of (highest clock / clock) by which the curve's latency grows, on average over a table."""
    if lowest_clock_mhz >= curve.highest_clock_mhz:
        return 1.0
    slow = [Setting(batch, share, lowest_clock_mhz) for batch in batches for share in sm_percents]
    fast = [Setting(batch, share, curve.highest_clock_mhz) for batch in batches for share in sm_percents]
    growth = np.mean(np.array(curve.predict(slow)[0]) - np.array(curve.predict(fast)[0]))
    return max(0.0, float(growth / np.log(curve.highest_clock_mhz / lowest_clock_mhz)))
