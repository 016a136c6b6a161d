"""How much a rate shakes when nothing happens: the yardstick for what is news."""

from __future__ import annotations

import math
from collections.abc import Sequence

from solvers.forecast.samples import Sample, mean_rate, since
from solvers.forecast.settings import ForecastTuning

FEWEST = 8  # differences below which a guess is better
GUESS = 0.05
_TO_DEVIATION = 1.4826 / math.sqrt(2)  # a median of absolute differences of two normal draws, as one's deviation


def noise_share(samples: Sequence[Sample], settings: ForecastTuning) -> float:
    """The standard deviation of a rate as a share of it, from samples far enough apart to shake independently.

    A median, so that neither a ramp nor a spike counts as noise; slow waves cancel in the differences.
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
    """Samples that far from each other, the newest among them."""
    found: list[Sample] = []
    for sample in reversed(samples):
        if not found or sample.at <= found[-1].at - seconds:
            found.append(sample)
    return found[::-1]


def surely_at_least(samples: Sequence[Sample], noise: float, surprise: float, independent_seconds: float) -> float:
    """A rate below which the true one is not, as far as noise of load and of counting goes."""
    seconds = sum(sample.seconds for sample in samples)
    if seconds <= 0:
        return 0.0
    mean = mean_rate(samples)
    independent = max(1.0, seconds / independent_seconds)
    counting = math.sqrt(max(mean * seconds, 1.0)) / seconds  # arrivals are counted, and counts scatter
    return mean - surprise * max(mean * noise / math.sqrt(independent), counting)
