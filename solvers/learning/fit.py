"""Fits a curve's factors to its regions: Gaussian beliefs, correlated along SM% and batch, and its neighbours' part.

Regions at one place of the curve, measured in the same time, differ by their neighbours alone: what is slower than the
quickest of them belongs to its neighbours. All the rest belongs to the curve.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from math import exp, log, log2, sqrt

import numpy as np

from solvers.gaussian import Floats, GaussianFit, fit_gaussian
from solvers.learning.region import Region
from solvers.learning.tuning import FilterTuning, PriorTuning


@dataclass(frozen=True, slots=True)
class CurveFit:
    """The logarithms of a curve's factors, anywhere on it, and those of its neighbours' pressures."""

    regions: tuple[Region, ...] = ()  # that it rests on
    neighbours: Mapping[str, float] = field(default_factory=dict)  # logarithm of the factor; 0: as declared
    prior: PriorTuning = field(default_factory=PriorTuning)
    _process: GaussianFit | None = None  # None: no regions

    def at(self, batch: int, sm_percent: int) -> tuple[float, float]:
        """Returns the logarithm of the factor there, and its deviation."""
        prior = self.prior.whole_deviation**2 + self.prior.place_deviation**2
        if self._process is None:
            return 0.0, sqrt(prior)
        shared = self._read_covariance(batch, sm_percent)
        return float(self._process.means(shared)[0]), float(self._process.deviations(prior, shared)[0])

    def margin_share(self, batch: int, sm_percent: int) -> float:
        """Returns the share of the profile's margin, quantile over mean, that is added to the factor there.

        Where nothing is known the factor is 1 and the profile has its margin in it; where much was measured, no margin
        is needed. Between them the mean moves with what was measured elsewhere, and a part of the spread is left.
        """
        if self._process is None:
            return 0.0
        moved = float(
            (self._read_covariance(batch, sm_percent) @ self._process.inverse).sum()
        )  # by a margin that all have
        whole = sqrt(self.prior.whole_deviation**2 + self.prior.place_deviation**2)
        return max(0.0, moved + self.at(batch, sm_percent)[1] / whole - 1.0)

    def _read_covariance(self, batch: int, sm_percent: int) -> Floats:
        """Returns the covariance of the factor there with each region's, as a row."""
        return np.array([[covariance(self.prior, region.place, (batch, sm_percent)) for region in self.regions]])


def fit_curve(
    regions: Sequence[Region], now: datetime, tuning: FilterTuning, prior: PriorTuning | None = None
) -> CurveFit:
    """Returns the fit to all regions that have enough samples.

    Less full batches and idle neighbours make execution faster, which proves nothing. So such a region counts as no
    faster than declared, or than the curve that the others show.
    """
    prior = prior or PriorTuning()
    known = [region for region in regions if region.counts(tuning)]
    proved = _solve([region for region in known if region.is_proving], {}, now, tuning, prior)
    shown = [region if region.is_proving else _keep_at_least(region, proved) for region in known]
    kept = _slowest(_newest(shown), prior)
    return _solve(kept, _neighbours(kept, now, tuning, prior), now, tuning, prior)


def inflate_others(before: Sequence[Region], after: Sequence[Region], prior: PriorTuning) -> list[Region]:
    """Returns the regions, of which those without a sample since another changed may have changed, too."""
    was = {(region.place, region.is_full, region.impacts): region for region in before}
    changes = []
    for region in after:
        known = was.get((region.place, region.is_full, region.impacts))
        if known is not None and known.since != region.since:
            changes.append((region, region.mean - known.mean))
    most = prior.whole_deviation**2 + prior.place_deviation**2
    found = []
    for region in after:
        more = 0.0
        for changed, shift in changes:
            if region.at and changed.since and region.at < changed.since:
                share = covariance(prior, region.place, changed.place) / most
                more += share * shift**2
        found.append(replace(region, variance=min(most, region.variance + more)) if more else region)
    return found


def covariance(prior: PriorTuning, one: tuple[int, int], other: tuple[int, int]) -> float:
    """Returns the covariance of the factors at two places: exponential in their distance, so that a step is no wave."""
    batches = abs(log2(one[0] / other[0])) / prior.batch_octaves
    sms = abs(log2(max(one[1], 1) / max(other[1], 1))) / prior.sm_octaves
    return prior.whole_deviation**2 + prior.place_deviation**2 * exp(-sms - batches)


def _keep_at_least(region: Region, proved: CurveFit) -> Region:
    return replace(region, mean=max(region.mean, min(0.0, proved.at(*region.place)[0])))


def _newest(regions: Sequence[Region]) -> list[Region]:
    """Leaves out what ended before another region of its place began: the curve may have changed between them."""
    return [
        region
        for region in regions
        if not any(
            other.place == region.place and other.since and region.at and other.since > region.at for other in regions
        )
    ]


def _slowest(regions: Sequence[Region], prior: PriorTuning) -> list[Region]:
    """Leaves one region of each place where nothing declared can explain a difference: the slowest has to do."""
    explained = [region for region in regions if _impact(region) >= prior.least_impact]
    found: dict[tuple[int, int], Region] = {}
    for region in regions:
        is_slowest = region.place not in found or region.mean > found[region.place].mean
        if _impact(region) < prior.least_impact and is_slowest:
            found[region.place] = region
    return [*found.values(), *explained]


def _neighbours(regions: Sequence[Region], now: datetime, tuning: FilterTuning, prior: PriorTuning) -> dict[str, float]:
    """Returns how much more than declared neighbours slow down, by what is slower than the quickest of its place.

    One that slows less than declared may have been idle, so that no factor is below 1.
    """
    settled = [region for region in regions if not region.refused]
    quickest: dict[tuple[int, int], Region] = {}
    for region in settled:
        if region.place not in quickest or region.mean < quickest[region.place].mean:
            quickest[region.place] = region
    beside = [
        region
        for region in settled
        if _impact(region) >= prior.least_impact and sum(other.place == region.place for other in settled) > 1
    ]
    names = sorted({name for region in beside for name, _ in region.impacts})
    if not names:
        return {}
    bases = [quickest[region.place] for region in beside]
    excess = np.array([region.mean - base.mean for region, base in zip(beside, bases, strict=True)])
    noise = np.array(
        [
            region.variance_at(now, tuning) + base.variance_at(now, tuning) + prior.place_noise**2
            for region, base in zip(beside, bases, strict=True)
        ]
    )
    logs = np.zeros(len(names))
    for _ in range(prior.iterations):  # linearised at each step, as an extended Kalman filter does
        at = dict(zip(names, logs.tolist(), strict=True))
        slopes = np.array([[_slope(region, name, at) for name in names] for region in beside])
        missing = excess - np.array([_effect(region, at) for region in beside]) + slopes @ logs
        precision = slopes.T @ (slopes / noise[:, None]) + np.eye(len(names)) / prior.neighbour_deviation**2
        logs = np.clip(np.linalg.solve(precision, slopes.T @ (missing / noise)), 0.0, log(prior.most_neighbour_factor))
    return dict(zip(names, logs.tolist(), strict=True))


def _solve(
    regions: Sequence[Region],
    neighbours: Mapping[str, float],
    now: datetime,
    tuning: FilterTuning,
    prior: PriorTuning,
) -> CurveFit:
    if not regions:
        return CurveFit(prior=prior)
    among = np.array([[covariance(prior, region.place, other.place) for other in regions] for region in regions])
    noise = np.diag([region.variance_at(now, tuning) + prior.place_noise**2 for region in regions])
    means = np.array([region.mean - _effect(region, neighbours) for region in regions])
    return CurveFit(tuple(regions), neighbours, prior, fit_gaussian(among + noise, means))


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
