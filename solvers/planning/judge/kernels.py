"""Compiled: simulates the contract's batch server request by request, and solves its chain at timeout 0."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from solvers.compiled import njit

Floats = NDArray[np.float64]


@njit(
    "Tuple((float64, float64, float64))(float64[::1], int64, float64, float64, float64, float64, int64, int64)",
    makes_arrays=True,
)
def count_served(
    units: Floats, batch: int, exec_s: float, timeout_s: float, rate: float, slo_s: float, skipped: int, blocks: int
) -> tuple[float, float, float]:
    """Returns the share of requests within the SLO, its standard error by block means, and the busy fraction.

    `units` are the arrival times of a Poisson stream of a request a second; divided by the rate they are the server's.
    The server starts empty. When free, it starts as soon as `batch` requests wait or the oldest has waited
    `timeout_s`, and takes all that wait, up to `batch`; a batch takes `exec_s` whatever its fill.
    """
    count = units.shape[0]
    length = (count - skipped) // blocks
    within = np.zeros(blocks)
    most_wait = (slo_s - exec_s) + 1e-9 * slo_s  # a request that starts at once waits exactly 0
    free = 0.0
    busy = 0.0
    head = 0
    while head < count:
        start = units[head] / rate + timeout_s
        if head + batch <= count:
            full = units[head + batch - 1] / rate
            if full < start:
                start = full
        if free > start:
            start = free
        taken = head
        while taken < count and taken < head + batch and units[taken] / rate <= start:
            if taken >= skipped and start - units[taken] / rate <= most_wait:
                block = (taken - skipped) // length
                if block < blocks:
                    within[block] += 1.0
            taken += 1
        if taken == head:  # its own wait ended at this very moment, and rounding says a hair later
            taken = head + 1
        free = start + exec_s
        busy += exec_s
        head = taken
    total = 0.0
    for block in range(blocks):
        total += within[block]
        within[block] /= length
    mean = total / (length * blocks)
    spread = 0.0
    for block in range(blocks):
        spread += (within[block] - mean) ** 2
    error = math.sqrt(spread / (blocks - 1) / blocks)
    return mean, error, min(1.0, busy / free)


@njit("float64[::1](float64[::1], float64[::1], float64[::1], int64)", makes_arrays=True)
def spread_by_bursts(units: Floats, factors: Floats, mean_units: Floats, seed: int) -> Floats:
    """Returns arrival times whose rate is by turns `factors[0]` and `factors[1]` of what it is in `units`.

    The phases last so long on average, exponentially. The times of a Poisson stream are the integral of the rate.
    """
    np.random.seed(seed)
    found = np.empty(units.shape[0])
    phase = 1 if np.random.random() * (mean_units[0] + mean_units[1]) < mean_units[1] else 0
    began, passed = 0.0, 0.0  # of this phase: its time, and the integral until then
    lasts = np.random.exponential(mean_units[phase])
    for request in range(units.shape[0]):
        while units[request] > passed + lasts * factors[phase]:
            began += lasts
            passed += lasts * factors[phase]
            phase = 1 - phase
            lasts = np.random.exponential(mean_units[phase])
        found[request] = began + (units[request] - passed) / factors[phase]
    return found


@njit("float64(int64, float64)", makes_arrays=True)
def busy_at_timeout_0(batch: int, arrivals: float) -> float:
    """Returns the fraction of time that a batch server is busy; `arrivals` come on average while a batch runs.

    Let X be the number left waiting when a batch ends, A ~ Poisson(arrivals): X' = max(X - batch, 0) + A, where an
    empty server waits for one request. X' = 0 needs X <= batch and A = 0, so P(X = 0) = P(X <= batch) exp(-arrivals),
    and the server idles P(X = 0) / arrivals executions between two batches. The chain is iterated until it converges.
    """
    if arrivals > 30.0:
        return 1.0  # it idles less than exp(-30) of the time
    size = 2 * batch + 400
    comes = np.zeros(120)
    comes[0] = math.exp(-arrivals)
    for k in range(1, 120):
        comes[k] = comes[k - 1] * arrivals / k
    state = np.zeros(size)
    state[0] = 1.0
    at_most_batch = 1.0
    for _ in range(20000):
        following = np.zeros(size)
        for k in range(120):
            following[k] = at_most_batch * comes[k]
        for waiting in range(batch + 1, size):
            chance = state[waiting]
            if chance > 1e-15:
                for k in range(min(120, size - (waiting - batch))):
                    following[waiting - batch + k] += chance * comes[k]
        total = 0.0
        for waiting in range(batch + 1):
            total += following[waiting]
        moved = 0.0
        for waiting in range(size):
            moved += abs(following[waiting] - state[waiting])
        state = following
        at_most_batch = total
        if moved < 1e-10:
            break
    idle = at_most_batch * math.exp(-arrivals) / arrivals
    return 1.0 / (1.0 + idle)
