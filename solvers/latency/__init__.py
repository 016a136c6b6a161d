"""The latency of a batch server: the rate it can serve within an SLO, its percentiles, and how busy it is."""

from __future__ import annotations

from solvers.latency.limits import LatencyTable, OutsideTheTable, limits, used_loads
from solvers.latency.rates import busy_fraction, latency_at, max_rate, patient_timeouts, timeout_for

__all__ = [
    "LatencyTable",
    "OutsideTheTable",
    "busy_fraction",
    "latency_at",
    "limits",
    "max_rate",
    "patient_timeouts",
    "timeout_for",
    "used_loads",
]
