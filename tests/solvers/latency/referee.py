"""A simulation of the batch server that shares nothing with the product, and the rule by which it refuses a promise."""

from __future__ import annotations

from typing import Any

import numpy as np

from solvers.compiled import njit

FEW, MANY = 60_000, 1_000_000
BLOCKS = 30


@njit("float64(int64, float64, float64, float64, float64, int64, int64, float64[::1])", makes_arrays=True)
def simulate(
    batch: int, exec_ms: float, rate_per_ms: float, timeout_ms: float, slo_ms: float, count: int, seed: int, blocks: Any
) -> float:
    """Share of requests within the SLO, by blocks, the first hundredth left out; returns the share of time busy."""
    np.random.seed(seed)
    arrivals = np.empty(count)
    now = 0.0
    for index in range(count):
        now += np.random.exponential(1.0 / rate_per_ms)
        arrivals[index] = now
    return serve(batch, exec_ms, timeout_ms, slo_ms, arrivals, blocks)


@njit("float64[::1](float64, float64, float64, int64, int64)", makes_arrays=True)
def bursty_arrivals(rate_per_ms: float, variation: float, slo_ms: float, count: int, seed: int) -> Any:
    """Arrivals at two rates by turns, each of which brings half of them: event by event, as a Markov chain."""
    np.random.seed(seed)
    apart = np.sqrt(variation / (1.0 + variation))
    rates = np.array([rate_per_ms / (1.0 + apart), rate_per_ms / (1.0 - apart)])
    leaves = np.array([(1.0 - apart) / slo_ms, (1.0 + apart) / slo_ms])
    phase = 0
    arrivals = np.empty(count)
    now = 0.0
    index = 0
    while index < count:
        both = rates[phase] + leaves[phase]
        now += np.random.exponential(1.0 / both)
        if np.random.random() * both < rates[phase]:
            arrivals[index] = now
            index += 1
        else:
            phase = 1 - phase
    return arrivals


@njit("float64(int64, float64, float64, float64, float64[::1], float64[::1])", makes_arrays=True)
def serve(batch: int, exec_ms: float, timeout_ms: float, slo_ms: float, arrivals: Any, blocks: Any) -> float:
    """Share of these requests within the SLO, by blocks; returns the share of time busy."""
    count = len(arrivals)
    skipped = count // 100
    size = (count - skipped) // len(blocks)
    free_at = busy_ms = 0.0
    first = 0
    while first < count:
        full_at = arrivals[first + batch - 1] if first + batch <= count else np.inf
        start = max(free_at, min(full_at, arrivals[first] + timeout_ms))
        free_at = start + exec_ms
        busy_ms += exec_ms
        taken = 0
        while taken < batch and first < count and arrivals[first] <= start:
            block = (first - skipped) // size
            if first >= skipped and block < len(blocks) and free_at - arrivals[first] <= slo_ms:
                blocks[block] += 1.0 / size
            first += 1
            taken += 1
    return float(busy_ms / free_at)


def shares(
    batch: int, exec_ms: float, rate_per_second: float, timeout_ms: float, slo_ms: float, count: int, seed: int,
    variation: float = 0.0,
) -> tuple[float, float]:  # fmt: skip
    """Share within the SLO, and its standard error from block means."""
    blocks = np.zeros(BLOCKS)
    if variation > 0.0:
        arrivals = bursty_arrivals(rate_per_second / 1000.0, variation, slo_ms, count, seed)
        serve(batch, exec_ms, timeout_ms, slo_ms, arrivals, blocks)
    else:
        simulate(batch, exec_ms, rate_per_second / 1000.0, timeout_ms, slo_ms, count, seed, blocks)
    return float(blocks.mean()), float(blocks.std(ddof=1) / BLOCKS**0.5)


def refuses(
    batch: int, exec_ms: float, rate_per_second: float, timeout_ms: float, slo_ms: float, percentile: float, seed: int,
    variation: float = 0.0,
) -> str:  # fmt: skip
    """What is wrong with a promise; empty when nothing is."""
    wanted = percentile / 100.0
    share, _ = shares(batch, exec_ms, rate_per_second, timeout_ms, slo_ms, FEW, seed, variation)
    if share >= wanted:
        return ""
    share, error = shares(batch, exec_ms, rate_per_second, timeout_ms, slo_ms, MANY, seed + 1, variation)
    if share >= wanted - 4.0 * error:
        return ""
    return (
        f"batch {batch}, exec {exec_ms:g} ms, SLO {slo_ms:g} ms, timeout {timeout_ms:g} ms, {rate_per_second:g}/s: "
        f"{share:.5f} of the requests in time, {wanted:.5f} promised, {(wanted - share) / error:.1f} errors short"
    )
