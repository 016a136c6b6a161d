"""The latency of a batch server: the rate it can serve within an SLO, its percentiles, and how busy it is."""

from __future__ import annotations

from solvers.latency.bursts import burstiness_of, variation_of
from solvers.latency.limits import LatencyTable, OutsideTheTable, limits, used_loads
from solvers.latency.rates import busy_fraction, latency_at, max_bursty_rate, max_rate, patient_timeouts, timeout_for

__all__ = [
    "LatencyTable",
    "OutsideTheTable",
    "burstiness_of",
    "busy_fraction",
    "latency_at",
    "limits",
    "max_bursty_rate",
    "max_rate",
    "patient_timeouts",
    "timeout_for",
    "used_loads",
    "variation_of",
]
