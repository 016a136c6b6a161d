"""Whether an SLO of the form (RT_max, SL_min) was kept by response times that were measured."""

from __future__ import annotations

from collections.abc import Sequence

from solvers.hetsev.scaling.problem import ScalingPromise


def percent_within(promise: ScalingPromise, response_ms: Sequence[float]) -> float:
    """How many of the requests were answered in time; all of none."""
    if not response_ms:
        return 100.0
    return 100.0 * sum(late <= promise.rt_max_ms for late in response_ms) / len(response_ms)


def is_kept(promise: ScalingPromise, response_ms: Sequence[float]) -> bool:
    """At least SL_min percent within RT_max."""
    return percent_within(promise, response_ms) >= promise.sl_min_percent
