"""Measures the noise of a rate: by how much it fluctuates while the load does not change."""

from __future__ import annotations

import math
from collections.abc import Sequence

from solvers.forecast.samples import Sample, mean_rate, seconds_of, since
from solvers.forecast.settings import ForecastTuning

FEWEST = 8  # with fewer differences, a guess is better
GUESS = 0.05
_TO_DEVIATION = 1.4826 / math.sqrt(2)  # from the median absolute difference of two normal draws to their deviation


def noise_share(samples: Sequence[Sample], settings: ForecastTuning) -> float:
    """Returns the standard deviation of a rate as a share of it, from samples far enough apart to be independent.

    It uses a median, so that neither a ramp nor a spike counts as noise; slow waves cancel in the differences.
    """
    if not samples:
        return GUESS
    recent = _apart(since(samples, samples[-1].at - settings.noise_seconds), settings.independent_seconds)
    rates = [sample.requests / sample.seconds for sample in recent]
    differences = [
        abs(here - there) / (here + there) * 2
        for there, here in zip(rates, rates[2:], strict=False)
        if here + there > 0
    ]
    if len(differences) < FEWEST:
        return GUESS
    differences.sort()
    return max(settings.least_noise, differences[len(differences) // 2] * _TO_DEVIATION)


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
