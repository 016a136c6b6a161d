"""A filter for one region of a curve: a robust, adaptive Kalman filter of the logarithm of measured over declared.

Samples that are too unlikely are refused, and only count once several in a row agree that the region has changed: then
the filter begins again from them. The noise is estimated from the samples themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from math import expm1, inf, pi, sqrt
from statistics import median

from solvers.learning.tuning import FilterTuning

DAY_SECONDS = 86400.0
MEDIAN_VARIANCE = pi / 2  # of a median of normal samples, over that of their mean
GUESSED_SCALE = 1.4826  # of the median deviation of normal samples
MOST_NOISE_MINUTES = 20  # the estimate of the noise forgets older ones
MOST_EXPONENT = 100.0
NOISE_CLIP = 4.0  # variances: what a single outlier may show of the noise


@dataclass(frozen=True, slots=True)
class RatioSample:
    """The logarithm of measured over declared in a minute: the median of so many instances."""

    at: datetime
    value: float
    instances: int = 1


@dataclass(frozen=True, slots=True)
class Region:
    """The belief of a filter about copies with one batch and share of SMs, beside the same neighbours."""

    batch: int
    sm_percent: int
    impacts: tuple[tuple[str, float], ...] = ()  # neighbour -> declared slowdown by its pressure; empty: alone
    is_full: bool = True  # batches were nearly full
    mean: float = 0.0
    variance: float = 0.0
    noise: float = 0.0  # variance of a sample
    n: int = 0  # minutes of instances since it began
    minutes: int = 0
    refused: int = 0  # of the last samples, in a row
    since: datetime | None = None  # its first sample, or the first after it changed
    at: datetime | None = None  # its last sample that was not refused
    changes: int = 0  # how often it has begun again
    recent: tuple[RatioSample, ...] = ()
    noise_minutes: int = 0  # that the noise was estimated from; a change of the mean keeps them

    @property
    def name(self) -> str:
        """The name of the region, for people: batch@SM%, ~ for batches that are not full, + and its neighbours."""
        beside = "+".join(name for name, _ in self.impacts)
        return f"{self.batch}@{self.sm_percent:g}{'' if self.is_full else '~'}{'+' + beside if beside else ''}"

    @property
    def is_proving(self) -> bool:
        """True if it also proves that execution is faster than declared: alone and with full batches."""
        return self.is_full and not self.impacts

    def variance_at(self, now: datetime, tuning: FilterTuning) -> float:
        """Returns the variance of its mean, which grows while no traffic comes, and while samples are refused."""
        idle = max(0.0, (now - self.at).total_seconds()) if self.at else 0.0
        doubt = (self.recent[-1].value - self.mean) ** 2 if self.refused > 1 else 0.0
        return self.variance + tuning.drift_per_day**2 * idle / DAY_SECONDS + doubt

    def mean_deviations(self, normal: float) -> float:
        """Returns how many deviations of its mean are as unlikely as so many of a normal one.

        That is Student's t, by Wallace's approximation: a noise that a few minutes show may be far too small."""
        freedom = min(self.noise_minutes, MOST_NOISE_MINUTES)  # of the differences, and of the noise assumed first
        if freedom < 1:
            return inf
        shrunk = (freedom - 5 / 6) / (freedom - 2 / 3 + 0.1 / freedom) ** 2
        return sqrt(freedom * expm1(min(normal**2 * shrunk, MOST_EXPONENT)))

    @property
    def place(self) -> tuple[int, int]:
        """Returns where it is on the curve."""
        return self.batch, self.sm_percent

    def counts(self, tuning: FilterTuning) -> bool:
        """Returns whether it has enough samples. One that has changed has shown so often enough."""
        return self.changes > 0 or (self.n >= tuning.fewest and self.minutes >= tuning.fewest_minutes)


def new_region(
    batch: int, sm_percent: int, impacts: tuple[tuple[str, float], ...] = (), is_full: bool = True
) -> Region:
    return Region(batch, sm_percent, impacts, is_full)


def update_region(before: Region, sample: RatioSample, tuning: FilterTuning) -> Region:
    """Returns the region after a sample."""
    recent = tuple(kept for kept in before.recent if (sample.at - kept.at).total_seconds() <= tuning.recent_seconds)
    recent = (*recent, sample)[-tuning.most_recent :]
    known = replace(
        before,
        recent=recent,
        since=before.since or sample.at,
        at=sample.at,
        n=before.n + sample.instances,
        minutes=before.minutes + 1,
        noise_minutes=before.noise_minutes + 1,
    )
    if not before.counts(tuning) or not before.variance:
        return _begun(known, recent, tuning)
    predicted = replace(before, refused=0).variance_at(sample.at, tuning)
    innovation = sample.value - before.mean
    likely = predicted + before.noise
    known = replace(known, noise=_noise(before, sample, tuning))
    last = recent[-tuning.fewest_minutes :]
    if len(last) == tuning.fewest_minutes and _has_changed(before, last, predicted, tuning):
        n = sum(each.instances for each in last)
        begun = _begun(known, last, tuning)
        return replace(begun, since=last[0].at, changes=before.changes + 1, refused=0, n=n, minutes=len(last))
    if innovation**2 > tuning.refused_deviations**2 * likely:
        return replace(before, recent=recent, noise=known.noise, refused=before.refused + 1)
    known = replace(known, refused=0)
    gain = max(predicted / likely, 1.0 / tuning.memory_minutes)
    # A filter that still averages over a few minutes only is as uncertain as their mean.
    variance = max((1 - gain) * predicted, known.noise / (tuning.memory_minutes - 1))
    return replace(known, mean=before.mean + gain * innovation, variance=variance)


def _noise(before: Region, sample: RatioSample, tuning: FilterTuning) -> float:
    """Returns the variance of a sample, by the difference of two in a row: a lasting change raises it only once."""
    if not before.recent:
        return before.noise
    between = (sample.value - before.recent[-1].value) ** 2 / 2
    share = max(tuning.noise_share, 1.0 / (before.noise_minutes + 1))  # an average of the first ones
    noise = before.noise + share * (min(between, NOISE_CLIP * before.noise) - before.noise)
    return max(noise, tuning.least_noise**2)


def _begun(known: Region, samples: Sequence[RatioSample], tuning: FilterTuning) -> Region:
    """Returns the region as its first samples show it: their median, which one outlier among them does not move."""
    values = [each.value for each in samples]
    middle = median(values)
    scatter = GUESSED_SCALE * median(abs(value - middle) for value in values)
    noise = max(scatter**2, known.noise, tuning.least_noise**2) if len(values) > 2 else tuning.first_noise**2
    return replace(known, mean=middle, noise=noise, variance=MEDIAN_VARIANCE * noise / len(values))


def _has_changed(before: Region, last: Sequence[RatioSample], predicted: float, tuning: FilterTuning) -> bool:
    """Returns whether all of the last samples lie on one side, and their median further away than noise explains.

    Each has to be at least half as far away as their median: two outliers in a row, after a usual sample, are none.
    """
    away = [sample.value - before.mean for sample in last]
    if min(value * median(away) for value in away) < median(away) ** 2 / 2:
        return False
    deviation = sqrt(predicted + MEDIAN_VARIANCE * before.noise / len(last))
    return abs(median(away)) > tuning.changed_deviations * deviation
