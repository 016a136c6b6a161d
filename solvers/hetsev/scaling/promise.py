"""Checks measured response times against an SLO of the form (RT_max, SL_min)."""

from __future__ import annotations

from collections.abc import Sequence

from solvers.hetsev.scaling.problem import ScalingPromise


def percent_within(promise: ScalingPromise, response_ms: Sequence[float]) -> float:
    """Returns the percentage of requests answered in time, 100 if there were none."""
    if not response_ms:
        return 100.0
    return 100.0 * sum(late <= promise.rt_max_ms for late in response_ms) / len(response_ms)


def is_met(promise: ScalingPromise, response_ms: Sequence[float]) -> bool:
    """Returns whether at least SL_min percent of the requests were answered within RT_max."""
    return percent_within(promise, response_ms) >= promise.sl_min_percent
