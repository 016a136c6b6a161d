"""Finds how long to remember a peak: a load that came back after a while is likely to take as long again."""

from __future__ import annotations

from collections.abc import Sequence

from solvers.forecast.samples import Sample
from solvers.forecast.settings import ForecastTuning


def recall_seconds(samples: Sequence[Sample], settings: ForecastTuning) -> float:
    """Returns for how long a peak is remembered.

    It is longer where the load took long to come back to a level that it had left: the longest such time decides. A
    time beyond the longest memory does not count.
    """
    rates = _minutes(samples, settings.smooth_seconds)
    longest = settings.recall_seconds
    for begin, left in enumerate(rates):
        lowest = left
        for steps, rate in enumerate(rates[begin + 1 :], 1):
            lowest = min(lowest, rate)
            if rate * (1 + settings.sudden_band) >= left:
                back = (steps + 1) * settings.smooth_seconds
                if lowest * (1 + settings.fall_band) < left and back <= settings.swing_seconds:
                    longest = max(longest, min(settings.swing_doubt * back, settings.swing_seconds))
                break
    return longest


def _minutes(samples: Sequence[Sample], seconds: float) -> list[float]:
    """Returns the mean rates of equal spans, counted back from the newest sample; 0 for one without samples."""
    now = samples[-1].at
    requests, lasted = [0.0], [0.0]
    for sample in reversed(samples):
        span = int((now - sample.at) // seconds)
        while span >= len(requests):
            requests.append(0.0)
            lasted.append(0.0)
        requests[span] += sample.requests
        lasted[span] += sample.seconds
    return [count / long if long else 0.0 for count, long in zip(reversed(requests), reversed(lasted), strict=True)]
