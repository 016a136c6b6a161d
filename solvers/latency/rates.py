"""Limits in rates and milliseconds: the rate an instance can serve, its batch timeout, and its latency."""

from __future__ import annotations

import math
from functools import cache
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from solvers.latency import grids, kernels
from solvers.latency.bursts import variation_of
from solvers.latency.limits import OutsideTheTable, row, table

Array: TypeAlias = NDArray[np.float64]

LEAST_RATE = 1e-9
STEPS = 200  # towards the largest rate with bursts,
CLOSE = 1e-6  # until so small a share of it is left
SHORT_OF = 1.0 - 1e-6  # shortens each timeout, so that rounding makes no request late


def max_rate(
    batch: int, exec_ms: float, slo_ms: float, percentile: float, variation: float = 0.0
) -> tuple[float, float]:
    """Returns the largest accepted rate per second and its timeout in ms; the caller adds utilization and margins.

    `variation` is that of the arrival rate (`bursts.variation_of`), 0 for Poisson arrivals.
    """
    ratio = _ratio(exec_ms, slo_ms)
    load = kernels.accepted_load(row(percentile, batch, variation=variation), ratio)
    rate_per_second = 1000.0 * load * batch / exec_ms
    prompt = kernels.accepted_load(row(percentile, batch, prompt=True, variation=variation), ratio)
    return rate_per_second, 0.0 if load <= prompt else _timeout_ms(exec_ms, ratio)


def max_bursty_rate(
    batch: int, exec_ms: float, slo_ms: float, percentile: float, burstiness: float
) -> tuple[float, float]:
    """Returns the same where arrivals at the server itself have this index of dispersion over windows of its SLO.

    At a higher rate it takes less variation to have it, so that the largest rate that is accepted with its own
    variation is approached from above.
    """
    rate_per_second, timeout_ms = max_rate(batch, exec_ms, slo_ms, percentile)
    for _ in range(STEPS if burstiness > 1.0 else 0):
        before = rate_per_second
        if before <= LEAST_RATE:
            return 0.0, 0.0  # a burst alone is too much
        variation = variation_of(burstiness, before, slo_ms)
        rate_per_second, timeout_ms = max_rate(batch, exec_ms, slo_ms, percentile, variation)
        if before - rate_per_second <= CLOSE * before:
            break
    return rate_per_second, timeout_ms


def timeout_for(
    batch: int, exec_ms: float, slo_ms: float, percentile: float, rate_per_second: float, variation: float = 0.0
) -> float | None:  # fmt: skip
    """Returns the timeout in ms under which this rate is accepted, 0 if none is needed, None if none is enough."""
    ratio = _ratio(exec_ms, slo_ms)
    load = 0.001 * rate_per_second * exec_ms / batch * (1.0 - 1e-12)  # rates were computed from loads, with rounding
    if load <= kernels.accepted_load(row(percentile, batch, prompt=True, variation=variation), ratio):
        return 0.0
    if load <= kernels.accepted_load(row(percentile, batch, variation=variation), ratio):
        return _timeout_ms(exec_ms, ratio)
    return None


def patient_timeouts(
    batches: NDArray[np.int64], exec_ms: Array, slo_ms: Array, rates_per_second: Array, accepted: Array
) -> Array:
    """Returns `timeout_for` of rates that are not accepted at timeout 0; NaN where no timeout is enough.

    `accepted` are the loads that are accepted with timeouts.
    """
    for index in np.flatnonzero(~(np.isfinite(exec_ms) & (exec_ms > 0) & np.isfinite(slo_ms) & (slo_ms > 0))):
        _ratio(float(exec_ms[index]), float(slo_ms[index]))  # refuses the number by its name
    ratio = slo_ms / exec_ms
    load = 0.001 * rates_per_second * exec_ms / batches * (1.0 - 1e-12)
    return np.where(load <= accepted, exec_ms * np.minimum(1.0, ratio - 1.0) * SHORT_OF, np.nan)


def latency_at(
    batch: int, exec_ms: float, rate_per_second: float, percentile: float, timeout_ms: float = 0.0,
    variation: float = 0.0,
) -> float:  # fmt: skip
    """Returns the latency in ms at this percentile, never too low; infinite if the load is beyond the table.

    With bursts it is the shortest SLO that the load keeps, where bursts last as long as that SLO.
    """
    if not 0.0 <= timeout_ms <= exec_ms:
        raise OutsideTheTable(f"timeout {timeout_ms:g} ms is outside 0..{exec_ms:g} ms, the time of one batch")
    load = 0.001 * rate_per_second * exec_ms / batch * (1.0 - 1e-12)
    ratio = kernels.needed_ratio(row(percentile, batch, prompt=True, variation=variation), load)
    if timeout_ms > 0.0:
        timeout = timeout_ms / exec_ms
        patient = kernels.needed_ratio(row(percentile, batch, variation=variation), load)
        # The ratio holds from its own timeout on: a longer timeout makes starts, and late requests, rarer.
        if timeout >= min(1.0, patient - 1.0) * SHORT_OF**2:
            ratio = min(ratio, patient)
        ratio = max(ratio, 1.0 + timeout)  # a request at an idle server waits for the whole timeout
    return math.inf if ratio >= kernels.NEVER else ratio * exec_ms


@cache
def none_left() -> Array:
    """Returns the rows for kernels.busy_at: the chance that a start empties the queue, by batch and load 0..1."""
    _, _, starts = table()
    at = np.linspace(0.0, 1.0, kernels.BUSY_POINTS)
    rows = np.ones((grids.MOST + 1, len(at)))
    for batch in range(1, grids.MOST + 1):
        rows[batch] = np.interp(at, [0.0, *grids.LOADS, 1.0], [1.0, *starts[batch - 1, :, 0], 0.0])
    return rows


def busy_fraction(batch: int, load: float) -> float:
    """Returns the share of time a server is busy at timeout 0.

    A batch takes exec even if it is not full, so the share is more than the load."""
    if not 1 <= batch <= grids.MOST:
        raise OutsideTheTable(f"batch {batch} is outside 1..{grids.MOST}")
    return float(kernels.busy_at(none_left()[batch], batch, load))


def _ratio(exec_ms: float, slo_ms: float) -> float:
    for name, value in (("exec_ms", exec_ms), ("slo_ms", slo_ms)):
        if not 0.0 < value < math.inf:
            raise ValueError(f"{name} is {value:g}; a finite number over 0 is needed")
    return slo_ms / exec_ms


def _timeout_ms(exec_ms: float, ratio: float) -> float:
    return exec_ms * min(1.0, ratio - 1.0) * SHORT_OF
