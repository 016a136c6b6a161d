"""The latency of a batch server: the rate it can serve within an SLO, its percentiles, and how busy it is."""

from __future__ import annotations

from solvers.latency.bursts import burstiness_of, variation_of
from solvers.latency.limits import LatencyTable, OutsideTheTable, limit_loads, limits
from solvers.latency.rates import busy_fraction, latency_at, max_bursty_rate, max_rate, patient_timeouts, timeout_for

__all__ = [
    "LatencyTable",
    "OutsideTheTable",
    "burstiness_of",
    "busy_fraction",
    "latency_at",
    "limit_loads",
    "limits",
    "max_bursty_rate",
    "max_rate",
    "patient_timeouts",
    "timeout_for",
    "variation_of",
]
