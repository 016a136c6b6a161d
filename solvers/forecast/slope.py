"""The rate that a service reaches by a moment if its course of late goes on: a line, and its upper quantile."""

from __future__ import annotations

import math
from collections.abc import Sequence

from solvers.forecast.samples import Sample, usable

DEVIATIONS = 1.28  # of a normal distribution: one of ten rates is higher
FEWEST_SAMPLES = 12
LEAST_SECONDS = 600.0  # of history


def extend_slope(samples: Sequence[Sample], ahead_seconds: float) -> float:
    """Returns the upper rate so long after the newest sample; 0 where too little is known. A fall is not extended."""
    known = usable(samples)
    if len(known) < FEWEST_SAMPLES or known[-1].at - known[0].at < LEAST_SECONDS:
        return 0.0
    count, now = len(known), known[-1].at
    ats, rates = [sample.at - now for sample in known], [sample.rate_per_second for sample in known]
    middle, mean = sum(ats) / count, sum(rates) / count
    spread = sum((at - middle) ** 2 for at in ats)
    slope = sum((at - middle) * (rate - mean) for at, rate in zip(ats, rates, strict=True)) / spread
    residual = sum((rate - mean - slope * (at - middle)) ** 2 for at, rate in zip(ats, rates, strict=True))
    ahead = ahead_seconds if slope > 0 else 0.0
    doubt = math.sqrt(residual / (count - 2) * (1 / count + (ahead - middle) ** 2 / spread))
    return max(0.0, mean + slope * (ahead - middle) + DEVIATIONS * doubt)
