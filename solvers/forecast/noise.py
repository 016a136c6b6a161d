"""Measures the noise of a rate: by how much it fluctuates while the load does not change."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median

from solvers.forecast.samples import Sample, mean_rate, seconds_of, select_since
from solvers.forecast.settings import ForecastTuning

FEWEST = 8  # with fewer differences, a guess is better
GUESS = 0.05
SERIES = 3  # that begin one after the other
_OF_MEDIAN = 1.4826  # from the median distance of normal draws to their deviation


def noise_share(samples: Sequence[Sample], settings: ForecastTuning) -> float:
    """Returns the standard deviation of a rate as a share of it, from samples far enough apart to be independent.

    It uses medians, so that neither a step nor a spike counts as noise. Rates differ from those before them, and from
    the middle between those before and after them: of a load that rises or falls for long only the first is large.
    """
    if not samples:
        return GUESS
    recent = select_since(samples, samples[-1].at - settings.noise_seconds)
    series = [
        [sample.requests / sample.seconds for sample in _apart(recent[:end], settings.independent_seconds)]
        for end in _ends(recent, settings.independent_seconds)
    ]
    if len(series[0]) - 2 < FEWEST:
        return GUESS
    changes = [_share(here, there) for rates in series for there, here in zip(rates, rates[2:], strict=False)]
    bends = [
        _share(here, (before + after) / 2)
        for rates in series for before, here, after in zip(rates, rates[2:], rates[4:], strict=False)
    ]  # fmt: skip
    return max(settings.least_noise, min(_deviation(changes, 2.0), _deviation(bends, 1.5)))


def _share(rate: float, other: float) -> float:
    """Returns the distance of two rates as a share of their mean."""
    return abs(rate - other) / (rate + other) * 2 if rate + other > 0 else 0.0


def _deviation(distances: Sequence[float], variance: float) -> float:
    """Returns the standard deviation of rates whose distances have so many times their variance."""
    return median(distances) * _OF_MEDIAN / math.sqrt(variance)


def _ends(samples: Sequence[Sample], seconds: float) -> list[int]:
    """Returns where series of samples that are so many seconds apart end, the longest first.

    One of them takes a sixth of the samples that are there, and its median is often half of what it should be.
    """
    ends, latest = [], math.inf
    for end in range(len(samples), 0, -1):
        at = samples[end - 1].at
        if at <= samples[-1].at - seconds:
            break
        if at <= latest:
            ends.append(end)
            latest = at - seconds / SERIES
    return ends


def _apart(samples: Sequence[Sample], seconds: float) -> list[Sample]:
    """Returns samples at least this far from each other, the newest among them."""
    found: list[Sample] = []
    latest = math.inf
    for sample in reversed(samples):
        if sample.at <= latest:
            found.append(sample)
            latest = sample.at - seconds
    return found[::-1]


def surely_at_least(samples: Sequence[Sample], noise: float, surprise: float, independent_seconds: float) -> float:
    """Returns a rate that the true rate is not below, allowing for the noise of load and of counting."""
    seconds = seconds_of(samples)
    if seconds <= 0:
        return 0.0
    mean = mean_rate(samples)
    independent = max(1.0, seconds / independent_seconds)
    counting = math.sqrt(max(mean * seconds, 1.0)) / seconds  # counts of arrivals scatter
    return mean - surprise * max(mean * noise / math.sqrt(independent), counting)
