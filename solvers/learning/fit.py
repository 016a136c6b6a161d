"""Fits a curve's factors to its regions: Gaussian beliefs, correlated along SM% and batch, and its neighbours' part.

A region where an instance runs alone shows the curve. One beside neighbours shows the curve and what the neighbours do;
regions with other neighbours, or with none, tell both apart. Their part is not linear, so that it is linearised anew
at each step, as an extended Kalman filter does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from math import exp, log, log2, sqrt

import numpy as np
from numpy.typing import NDArray

from solvers.learning.region import Region
from solvers.learning.tuning import FilterTuning, PriorTuning

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class CurveFit:
    """The logarithms of a curve's factors, anywhere on it, and those of its neighbours' pressures, with deviations."""

    regions: tuple[Region, ...] = ()  # that it rests on
    prior: PriorTuning = field(default_factory=PriorTuning)
    neighbours: Mapping[str, tuple[float, float]] = field(default_factory=dict)  # logarithm and deviation
    _weights: Floats = field(default_factory=lambda: np.zeros(0))
    _inverse: Floats = field(default_factory=lambda: np.zeros((0, 0)))

    def at(self, batch: int, sm_percent: float) -> tuple[float, float]:
        """Returns the logarithm of the factor there, and its deviation."""
        prior = self.prior.whole_deviation**2 + self.prior.place_deviation**2
        if not self.regions:
            return 0.0, sqrt(prior)
        shared = np.array([_covariance(self.prior, region, batch, sm_percent) for region in self.regions])
        return float(shared @ self._weights), sqrt(max(0.0, prior - float(shared @ self._inverse @ shared)))

    def beside(self, region: Region) -> float:
        """Returns the logarithm of how much longer than declared the region's neighbours make it."""
        return _effect(region, {name: mean for name, (mean, _) in self.neighbours.items()})


def fit_curve(
    regions: Sequence[Region], now: datetime, tuning: FilterTuning, prior: PriorTuning | None = None
) -> CurveFit:
    """Returns the fit to all regions that have enough samples.

    Less full batches and idle neighbours make execution faster, which proves nothing. So such a region counts only
    where it is not faster than the curve that the others show.
    """
    prior = prior or PriorTuning()
    known = [region for region in regions if region.counts(tuning)]
    proved = _solve([region for region in known if region.is_proving], now, tuning, prior)
    slower = [
        region
        for region in known
        if not region.is_proving and region.mean >= min(0.0, proved.at(region.batch, region.sm_percent)[0])
    ]
    kept = [*(region for region in known if region.is_proving), *slower]
    return _solve(_slowest(kept, prior), now, tuning, prior)


def _slowest(regions: Sequence[Region], prior: PriorTuning) -> list[Region]:
    """Leaves one region of each place where nothing declared can explain a difference: the slowest has to do."""
    explained = [region for region in regions if _impact(region) >= prior.least_impact]
    found: dict[tuple[int, int], Region] = {}
    for region in regions:
        if _impact(region) < prior.least_impact:
            place = (region.batch, region.sm_percent)
            if place not in found or region.mean > found[place].mean:
                found[place] = region
    return [*found.values(), *explained]


def _solve(regions: Sequence[Region], now: datetime, tuning: FilterTuning, prior: PriorTuning) -> CurveFit:
    if not regions:
        return CurveFit(prior=prior)
    names = sorted({name for region in regions for name, _ in region.impacts if _impact(region) >= prior.least_impact})
    among = np.array([[_covariance(prior, one, other.batch, other.sm_percent) for other in regions] for one in regions])
    noise = np.diag([region.variance_at(now, tuning) + prior.place_noise**2 for region in regions])
    means = np.array([region.mean for region in regions])
    most = log(prior.most_neighbour_factor)
    logs = np.zeros(len(names))
    for _ in range(prior.iterations if names else 1):
        at = dict(zip(names, logs.tolist(), strict=True))
        slopes = np.array([[_slope(region, name, at) for name in names] for region in regions])
        effects = np.array([_effect(region, at) for region in regions])
        reached = slopes.reshape(len(regions), len(names))
        spread = prior.neighbour_deviation**2 * reached @ reached.T
        inverse = np.linalg.inv(among + spread + noise)
        weights = inverse @ (means - effects + reached @ logs)
        logs = np.clip(prior.neighbour_deviation**2 * reached.T @ weights, -most, most)
    left = prior.neighbour_deviation**2 * (
        np.eye(len(names)) - prior.neighbour_deviation**2 * reached.T @ inverse @ reached
    )
    deviations = np.sqrt(np.maximum(0.0, np.diag(left)))
    neighbours = {name: (float(logs[at]), float(deviations[at])) for at, name in enumerate(names)}
    return CurveFit(tuple(regions), prior, neighbours, weights, inverse)


def _covariance(prior: PriorTuning, region: Region, batch: int, sm_percent: float) -> float:
    """Returns the covariance of the factors at two places: exponential in their distance, so that a step is no wave."""
    sm = abs(log2(max(region.sm_percent, 1.0) / max(sm_percent, 1.0))) / prior.sm_octaves
    batches = abs(log2(region.batch / batch)) / prior.batch_octaves
    return prior.whole_deviation**2 + prior.place_deviation**2 * exp(-sm - batches)


def _impact(region: Region) -> float:
    return sum(impact for _, impact in region.impacts)


def _effect(region: Region, logs: Mapping[str, float]) -> float:
    """Returns log((1 + sum of impacts x factors) / (1 + sum of impacts))."""
    felt = sum(impact * exp(logs.get(name, 0.0)) for name, impact in region.impacts)
    return log((1 + felt) / (1 + _impact(region)))


def _slope(region: Region, name: str, logs: Mapping[str, float]) -> float:
    """Returns by how much the effect grows with the logarithm of this neighbour's factor."""
    felt = sum(impact * exp(logs.get(other, 0.0)) for other, impact in region.impacts)
    own = sum(impact * exp(logs[name]) for other, impact in region.impacts if other == name)
    return own / (1 + felt)
